//! `doc bind`, `doc unbind`, `doc bindings`: what parts of documents are bound to in the registry.

use serde_json::{Value, json};

use crate::arguments::documents::{BindArguments, BindingsArguments, UnbindArguments};
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::text;
use crate::table::aligned;
use crate::target::Target;
use crate::{documents, local_registry, session};

pub(crate) fn list(arguments: &BindingsArguments) -> Result<(), Failure> {
    let bindings = session::block_on(async {
        match arguments.target.find_existing_or_none().await? {
            Some(target) => documents::all_bindings(&target).await,
            None => Ok(Vec::new()),
        }
    })?;
    if arguments.json {
        return output::print_json(&Value::Array(bindings));
    }
    if bindings.is_empty() {
        print_message("there is no binding in the registry");
        return Ok(());
    }
    let row = |binding: &Value| {
        let inherit = if binding["inherit_to_children"] == true { "" } else { "not for sections inside" };
        let part = part(binding);
        [text(binding, "id"), text(binding, "document"), part, text(binding, "server_name"), inherit.to_owned()]
    };
    output::print_lines(&aligned(&bindings.iter().map(row).collect::<Vec<_>>()))
}

pub(crate) fn add(arguments: &BindArguments) -> Result<(), Failure> {
    let BindArguments { document, server, heading, block_id, lines, no_inherit, json: as_json, target } = arguments;
    let binding = json!({
        "document": document,
        "server_id": server,
        "heading_text": heading,
        "block_id": block_id,
        "start_line": lines.map(|(first, _)| first),
        "end_line": lines.map(|(_, last)| last),
        "inherit_to_children": !no_inherit,
    });
    let made = session::block_on(async {
        match target.find_for_change().await? {
            Target::Service(service) => Ok(service.post("/bindings", Some(&binding)).await?),
            Target::Registry(store) => local_registry::bind(&store, &binding).await,
        }
    })?;
    if *as_json {
        return output::print_json(&made);
    }
    print_message(format_args!(
        "bound {} of {} to `{}`",
        part(&made),
        text(&made, "document"),
        text(&made, "server_name")
    ));
    Ok(())
}

pub(crate) fn remove(arguments: &UnbindArguments) -> Result<(), Failure> {
    session::block_on(async {
        match arguments.target.find_for_change().await? {
            Target::Service(service) => {
                service.delete(&format!("/bindings/{}", arguments.id)).await?;
                Ok(())
            }
            Target::Registry(store) => local_registry::unbind(&store, arguments.id).await,
        }
    })?;
    if arguments.json {
        return output::print_json(&json!({"removed": arguments.id}));
    }
    print_message(format_args!("removed binding {}", arguments.id));
    Ok(())
}

/// Which part of a document, in words.
fn part(binding: &Value) -> String {
    match binding["section_type"].as_str() {
        Some("heading") => format!("heading `{}`", text(binding, "heading_text")),
        Some("block") => format!("block ^{}", text(binding, "block_id").trim_start_matches('^')),
        _ => format!("lines {}-{}", text(binding, "start_line"), text(binding, "end_line")),
    }
}
