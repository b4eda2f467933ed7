//! `example-calc`: an MCP server for what language models get wrong. See [`example_servers::calc`].

use anyhow::bail;

fn main() -> anyhow::Result<()> {
    if let Some(argument) = std::env::args_os().nth(1) {
        bail!("unexpected argument {argument:?}: example-calc is an MCP server over stdio and takes none");
    }
    example_servers::calc::server().serve()?;
    Ok(())
}
