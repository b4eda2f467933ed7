// What schemas mean, as far as a form needs to know.

// A schema as it is meant: what it refers to is put in, and what only allows `null` as well is left out.
function meant(schema, root, depth = 0) {
  if (!isObject(schema) || depth > 10) return {};
  const { $ref: ref, ...said } = schema;
  if (typeof ref === 'string' && ref.startsWith('#')) {
    const target = referred(ref, root);
    return meant({ ...(isObject(target) ? target : {}), ...said }, root, depth + 1);
  }
  for (const key of ['allOf', 'anyOf', 'oneOf']) {
    const { [key]: all, ...others } = said;
    if (!Array.isArray(all)) continue;
    const left = all.filter((one) => key === 'allOf' || one?.type !== 'null');
    // The only one that can be chosen is still to be chosen: it may be what somebody agrees to.
    if (key !== 'allOf' && left.length && left.every((one) => isObject(one) && 'const' in one)) return { ...others, oneOf: left };
    if (left.length === 1 && isObject(left[0])) return meant({ ...left[0], ...others }, root, depth + 1);
  }
  return said;
}

function referred(ref, root) {
  const steps = ref.slice(1).split('/').slice(1).map((step) => { try { return decodeURIComponent(step); } catch { return step; } });
  return steps.map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~')).reduce((at, step) => at?.[step], root);
}

const kindOf = (said) => (Array.isArray(said.type) ? said.type.find((word) => word !== 'null') : said.type);

// Everything that a value may be; nothing said means anything.
function kindsOf(said, root) {
  if (said.type !== undefined) return [said.type].flat();
  const all = [said.anyOf, said.oneOf].find(Array.isArray) ?? [];
  return all.flatMap((one) => { const it = meant(one, root); return it.type === undefined ? [it.properties ? 'object' : 'any'] : [it.type].flat(); });
}

// Whether a value that was read is one of the kinds.
function isOfKind(value, kinds) {
  const kind = value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
  return !kinds.length || kinds.includes('any') || kinds.includes(kind) || kind === 'number' && kinds.includes('integer') && Number.isInteger(value);
}

// What can be chosen from: the values, and what each is called.
function choicesOf(said) {
  const named = [said.oneOf, said.anyOf].find((all) => Array.isArray(all) && all.length && all.every((one) => isObject(one) && 'const' in one));
  const values = Array.isArray(said.enum) ? said.enum : 'const' in said ? [said.const] : named?.map((one) => one.const);
  if (!values) return null;
  const titles = Array.isArray(said.enum) ? said.enumNames : named?.map((one) => one.title);
  return values.map((value, at) => ({ text: JSON.stringify(value), title: visible(String(titles?.[at] ?? plain(value))) }));
}

const plain = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
