//! From a schema to a program: first all schemas in it are found with their base URIs, then their keywords are read.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::NotChecked;
use crate::equality::{ValueHasher, size};
use crate::format::Format;
use crate::program::{Draft, Keyword, Members, Node, NodeId, Program, Resource, ResourceId, Type};
use crate::reference::{decoded, pointer_steps, resolve, split_fragment};
use crate::steps::Steps;

/// Keywords whose value is a schema, a list of schemas, or an object of schemas.
const ONE_SCHEMA: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const SCHEMA_LIST: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
const SCHEMA_MAP: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

type Compiled<T> = Result<T, NotChecked>;

/// Compiles a schema.
pub(crate) fn compile<'s>(schema: &'s Value, steps: &mut Steps<'_>) -> Compiled<Program<'s>> {
    let program = Program {
        nodes: Vec::new(),
        resources: Vec::new(),
        patterns: Vec::new(),
        needs_marks: false,
        hasher: ValueHasher::default(),
    };
    let mut compiler = Compiler { program, by_address: HashMap::new(), by_uri: HashMap::new(), steps };
    compiler.find_schemas(schema)?;
    // A reference may lead to a place that is a schema only because of it: the list grows meanwhile.
    let mut next = 0;
    while next < compiler.program.nodes.len() {
        // Nodes that stand for no schema of their own have their keywords already.
        if compiler.program.nodes[next].keywords.is_empty() {
            compiler.program.nodes[next].keywords = compiler.keywords(next)?;
        }
        next += 1;
    }
    Ok(compiler.program)
}

struct Compiler<'s, 'c, 'a> {
    program: Program<'s>,
    /// Nodes by where their schemas are in memory: no two are at the same place.
    by_address: HashMap<*const Value, NodeId>,
    by_uri: HashMap<String, ResourceId>,
    steps: &'c mut Steps<'a>,
}

impl<'s> Compiler<'s, '_, '_> {
    /// Makes a node of every schema inside a schema, and notes base URIs and anchors.
    fn find_schemas(&mut self, root: &'s Value) -> Compiled<()> {
        let mut waiting: Vec<(&'s Value, Option<ResourceId>)> = vec![(root, None)];
        while let Some((schema, outer)) = waiting.pop() {
            self.steps.take(1)?;
            let resource = self.enter(schema, outer)?;
            let Value::Object(members) = schema else { continue };
            for (name, value) in members {
                self.steps.take(1)?;
                let name = name.as_str();
                let mut push = |schema: &'s Value| {
                    if schema.is_object() || schema.is_boolean() {
                        waiting.push((schema, Some(resource)));
                    }
                };
                match value {
                    Value::Object(inner) if SCHEMA_MAP.contains(&name) => inner.values().for_each(push),
                    Value::Array(list) if SCHEMA_LIST.contains(&name) => list.iter().for_each(push),
                    schema if ONE_SCHEMA.contains(&name) => push(schema),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Adds a node, and a resource if the schema begins one.
    fn enter(&mut self, schema: &'s Value, outer: Option<ResourceId>) -> Compiled<ResourceId> {
        let node = self.program.nodes.len();
        let outer_draft = outer.map_or(Draft::Draft202012, |outer| self.program.resources[outer].draft);
        let text = |name: &str| schema.get(name).and_then(Value::as_str);
        let id_of = |draft: Draft| text(if draft == Draft::Draft4 { "id" } else { "$id" });
        let named = match text("$schema").filter(|_| outer.is_none() || id_of(outer_draft).is_some()) {
            Some(uri) => Some(Draft::named(uri).ok_or_else(|| NotChecked::UnknownDraft(shortened(uri)))?),
            None => None,
        };
        let draft = named.unwrap_or(outer_draft);
        // Before draft 2019-09 nothing beside a `$ref` counts, and an `$id` that is a fragment is an anchor.
        let is_reference = draft <= Draft::Draft7 && text("$ref").is_some();
        let id = id_of(draft).filter(|_| !is_reference);
        let (uri, fragment) = id.map_or(("", ""), split_fragment);
        let resource = match outer {
            Some(outer) if uri.is_empty() => outer,
            outer => {
                let base = resolve(outer.map_or("", |outer| &self.program.resources[outer].base), uri);
                self.steps.take(1 + base.len() / 8)?;
                let number = self.program.resources.len();
                self.by_uri.entry(base.clone()).or_insert(number);
                self.program.resources.push(Resource {
                    base,
                    draft,
                    root: node,
                    anchors: HashMap::new(),
                    dynamic_anchors: HashMap::new(),
                    is_recursive: schema.get("$recursiveAnchor") == Some(&Value::Bool(true)),
                });
                number
            }
        };
        let anchors = &mut self.program.resources[resource];
        if draft <= Draft::Draft7 && !fragment.is_empty() {
            anchors.anchors.insert(fragment.to_owned(), node);
        }
        if draft >= Draft::Draft201909 {
            anchors.anchors.extend(text("$anchor").map(|name| (name.to_owned(), node)));
        }
        if draft >= Draft::Draft202012
            && let Some(name) = text("$dynamicAnchor")
        {
            anchors.anchors.insert(name.to_owned(), node);
            anchors.dynamic_anchors.insert(name.to_owned(), node);
        }
        self.add_node(schema, resource);
        Ok(resource)
    }

    fn add_node(&mut self, schema: &'s Value, resource: ResourceId) -> NodeId {
        self.program.nodes.push(Node { schema, resource, keywords: Vec::new() });
        let node = self.program.nodes.len() - 1;
        self.by_address.insert(std::ptr::from_ref(schema), node);
        node
    }

    /// The node of a schema at a place where one must be.
    fn node(&mut self, schema: &'s Value, resource: ResourceId, keyword: &str) -> Compiled<NodeId> {
        if !schema.is_object() && !schema.is_boolean() {
            return Err(not_a_schema(keyword, "must be a schema: an object, true or false"));
        }
        let known = self.by_address.get(&std::ptr::from_ref(schema)).copied();
        Ok(known.unwrap_or_else(|| self.add_node(schema, resource)))
    }

    fn nodes(&mut self, list: &'s Value, resource: ResourceId, keyword: &str) -> Compiled<Vec<NodeId>> {
        let list = list.as_array().ok_or_else(|| not_a_schema(keyword, "must be a list of schemas"))?;
        list.iter().map(|schema| self.node(schema, resource, keyword)).collect()
    }

    /// What a reference leads to, if it leads anywhere.
    fn target(&mut self, reference: &str, from: ResourceId) -> Compiled<Option<NodeId>> {
        let (uri, fragment) = split_fragment(reference);
        self.steps.take(1 + reference.len() / 8)?;
        let resource = if uri.is_empty() {
            Some(from)
        } else {
            let base = &self.program.resources[from].base;
            self.steps.take(base.len() / 8)?;
            self.by_uri.get(&resolve(base, uri)).copied()
        };
        let (Some(resource), Some(fragment)) = (resource, decoded(fragment)) else { return Ok(None) };
        let root = self.program.resources[resource].root;
        if fragment.is_empty() {
            return Ok(Some(root));
        }
        if !fragment.starts_with('/') {
            return Ok(self.program.resources[resource].anchors.get(&fragment).copied());
        }
        let mut here = self.program.nodes[root].schema;
        let mut resource = resource;
        for step in pointer_steps(&fragment) {
            self.steps.take(1)?;
            let next = match here {
                Value::Object(members) => members.get(&step),
                Value::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
                _ => None,
            };
            let Some(next) = next else { return Ok(None) };
            here = next;
            if let Some(node) = self.by_address.get(&std::ptr::from_ref(here)) {
                resource = self.program.nodes[*node].resource;
            }
        }
        self.node(here, resource, "$ref").map(Some)
    }

    fn reference(&mut self, reference: &'s str, from: ResourceId) -> Compiled<Keyword<'s>> {
        Ok(self.target(reference, from)?.map_or(Keyword::Unresolved(reference), Keyword::Reference))
    }

    fn dynamic_reference(&mut self, reference: &'s str, from: ResourceId) -> Compiled<Keyword<'s>> {
        let Some(target) = self.target(reference, from)? else { return Ok(Keyword::Unresolved(reference)) };
        let resource = &self.program.resources[self.program.nodes[target].resource];
        let name = split_fragment(reference).1;
        let is_dynamic = resource.dynamic_anchors.get(name) == Some(&target);
        Ok(Keyword::DynamicReference { target, anchor: is_dynamic.then(|| name.to_owned()) })
    }

    fn pattern(&mut self, source: &'s str) -> usize {
        self.program.patterns.push(source);
        self.program.patterns.len() - 1
    }

    /// The rules of a node.
    fn keywords(&mut self, node: NodeId) -> Compiled<Vec<Keyword<'s>>> {
        let Node { schema, resource, .. } = self.program.nodes[node];
        self.steps.take(1)?;
        let members = match schema {
            Value::Bool(true) => return Ok(Vec::new()),
            Value::Bool(false) => return Ok(vec![Keyword::Never]),
            Value::Object(members) => members,
            _ => return Err(NotChecked::NotASchema("it must be an object, true or false".to_owned())),
        };
        let draft = self.program.resources[resource].draft;
        if draft <= Draft::Draft7
            && let Some(Value::String(reference)) = members.get("$ref")
        {
            return Ok(vec![self.reference(reference, resource)?]);
        }
        let mut found = Vec::new();
        for (name, value) in members {
            self.steps.take(1)?;
            let keyword = Written { name, value, members, draft, resource };
            found.extend(self.keyword(&keyword)?);
        }
        found.extend(self.members(members, resource)?);
        found.extend(self.items(members, resource, draft)?);
        if draft >= Draft::Draft201909 {
            found.extend(self.unevaluated(members, resource)?);
        }
        Ok(found)
    }

    fn keyword(&mut self, written: &Written<'s, '_>) -> Compiled<Option<Keyword<'s>>> {
        let Written { name, value, resource, draft, .. } = *written;
        let since_2019 = draft >= Draft::Draft201909;
        let keyword = match name {
            "$ref" => self.reference(written.text()?, resource)?,
            "$dynamicRef" if draft >= Draft::Draft202012 => self.dynamic_reference(written.text()?, resource)?,
            "$recursiveRef" if draft == Draft::Draft201909 => match self.target(written.text()?, resource)? {
                Some(target) => Keyword::RecursiveReference(target),
                None => Keyword::Unresolved(written.text()?),
            },
            "type" => {
                self.steps.take(value.as_array().map_or(1, Vec::len))?;
                Keyword::Types(written.types()?)
            }
            "enum" => self.options(written)?,
            "const" if draft > Draft::Draft4 => Keyword::Const(value),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                return written.number_rule();
            }
            "minLength" => Keyword::MinLength(written.count()?),
            "maxLength" => Keyword::MaxLength(written.count()?),
            "minItems" => Keyword::MinItems(written.count()?),
            "maxItems" => Keyword::MaxItems(written.count()?),
            "minProperties" => Keyword::MinProperties(written.count()?),
            "maxProperties" => Keyword::MaxProperties(written.count()?),
            "uniqueItems" => return Ok(written.truth()?.then_some(Keyword::UniqueItems)),
            "pattern" => Keyword::Pattern(self.pattern(written.text()?)),
            // From draft 2019-09 on it only describes, and unknown formats always do.
            "format" => {
                let name = written.text()?;
                let format = Format::named(name).filter(|_| draft <= Draft::Draft7);
                return Ok(format.map(|format| Keyword::Format(format, name)));
            }
            "required" => Keyword::Required(written.names()?),
            "propertyNames" if draft > Draft::Draft4 => Keyword::PropertyNames(self.node(value, resource, name)?),
            "contains" if draft > Draft::Draft4 => {
                let count = |name: &'static str| match written.members.get(name).filter(|_| since_2019) {
                    Some(value) => Written { name, value, ..*written }.count().map(Some),
                    None => Ok(None),
                };
                let (min, max) = (count("minContains")?.unwrap_or(1), count("maxContains")?);
                let node = self.node(value, resource, name)?;
                Keyword::Contains { node, min, max, marks: draft >= Draft::Draft202012 }
            }
            "allOf" => Keyword::AllOf(self.nodes(value, resource, name)?),
            "anyOf" => Keyword::AnyOf(self.nodes(value, resource, name)?),
            "oneOf" => Keyword::OneOf(self.nodes(value, resource, name)?),
            "not" => Keyword::Not(self.node(value, resource, name)?),
            "if" if draft > Draft::Draft4 => {
                let condition = self.node(value, resource, name)?;
                let mut branch =
                    |name: &str| written.members.get(name).map(|schema| self.node(schema, resource, name)).transpose();
                Keyword::If { condition, then: branch("then")?, otherwise: branch("else")? }
            }
            "dependentRequired" if since_2019 => {
                let entries = written.object()?.iter();
                let entry = |(name, names): (&'s String, &'s Value)| {
                    Ok((name.as_str(), Written { name: "dependentRequired", value: names, ..*written }.names()?))
                };
                Keyword::DependentRequired(entries.map(entry).collect::<Compiled<_>>()?)
            }
            "dependentSchemas" if since_2019 => {
                let mut all = Vec::new();
                for (member, schema) in written.object()? {
                    all.push((member.as_str(), self.node(schema, resource, name)?));
                }
                Keyword::DependentSchemas(all)
            }
            "dependencies" if !since_2019 => return self.dependencies(written).map(Some),
            _ => return Ok(None),
        };
        Ok(Some(keyword))
    }

    fn options(&mut self, written: &Written<'s, '_>) -> Compiled<Keyword<'s>> {
        let options = written.value.as_array().ok_or_else(|| written.wrong("must be a list"))?;
        let mut hashes: HashMap<u64, Vec<usize>> = HashMap::new();
        for (index, option) in options.iter().enumerate() {
            self.steps.take(size(option))?;
            hashes.entry(self.program.hasher.hash(option)).or_default().push(index);
        }
        Ok(Keyword::Enum { options, hashes })
    }

    /// Both kinds of dependencies as one: a list of names is a schema that requires them.
    fn dependencies(&mut self, written: &Written<'s, '_>) -> Compiled<Keyword<'s>> {
        let (mut required, mut schemas) = (Vec::new(), Vec::new());
        for (member, value) in written.object()? {
            match value {
                Value::Array(_) => required.push((member.as_str(), Written { value, ..*written }.names()?)),
                schema => schemas.push((member.as_str(), self.node(schema, written.resource, written.name)?)),
            }
        }
        if required.is_empty() {
            return Ok(Keyword::DependentSchemas(schemas));
        }
        if schemas.is_empty() {
            return Ok(Keyword::DependentRequired(required));
        }
        // Both in one `dependencies`: the nodes of the one are joined to those of the other.
        let holder = self.add_holder(written.resource, Keyword::DependentRequired(required));
        let rest = self.add_holder(written.resource, Keyword::DependentSchemas(schemas));
        Ok(Keyword::AllOf(vec![holder, rest]))
    }

    /// A node that no schema stands for.
    fn add_holder(&mut self, resource: ResourceId, keyword: Keyword<'s>) -> NodeId {
        self.program.nodes.push(Node { schema: &Value::Bool(true), resource, keywords: vec![keyword] });
        self.program.nodes.len() - 1
    }

    fn members(&mut self, members: &'s Map<String, Value>, resource: ResourceId) -> Compiled<Option<Keyword<'s>>> {
        let object = |name: &str| match members.get(name) {
            Some(Value::Object(inner)) => Ok(Some(inner)),
            Some(_) => Err(not_a_schema(name, "must be an object")),
            None => Ok(None),
        };
        let (properties, by_pattern) = (object("properties")?, object("patternProperties")?);
        let mut named = HashMap::new();
        for (name, schema) in properties.into_iter().flatten() {
            self.steps.take(1)?;
            named.insert(name.as_str(), self.node(schema, resource, "properties")?);
        }
        let mut patterns = Vec::new();
        for (pattern, schema) in by_pattern.into_iter().flatten() {
            self.steps.take(1)?;
            let pattern = self.pattern(pattern);
            patterns.push((pattern, self.node(schema, resource, "patternProperties")?));
        }
        let additional = members.get("additionalProperties");
        let additional = additional.map(|schema| self.node(schema, resource, "additionalProperties")).transpose()?;
        let is_empty = named.is_empty() && patterns.is_empty() && additional.is_none();
        Ok((!is_empty).then_some(Keyword::Members(Members { named, patterns, additional })))
    }

    fn items(
        &mut self,
        members: &'s Map<String, Value>,
        resource: ResourceId,
        draft: Draft,
    ) -> Compiled<Option<Keyword<'s>>> {
        let items = members.get("items");
        let (first, rest, name) = match (draft, items) {
            (Draft::Draft202012, _) => (members.get("prefixItems"), items, "items"),
            (_, Some(Value::Array(_))) => (items, members.get("additionalItems"), "additionalItems"),
            _ => (None, items, "items"),
        };
        let first = first.map(|list| self.nodes(list, resource, "prefixItems")).transpose()?.unwrap_or_default();
        let rest = rest.map(|schema| self.node(schema, resource, name)).transpose()?;
        Ok((!first.is_empty() || rest.is_some()).then_some(Keyword::Items { first, rest }))
    }

    fn unevaluated(&mut self, members: &'s Map<String, Value>, resource: ResourceId) -> Compiled<Vec<Keyword<'s>>> {
        let mut found = Vec::new();
        if let Some(schema) = members.get("unevaluatedProperties") {
            found.push(Keyword::UnevaluatedProperties(self.node(schema, resource, "unevaluatedProperties")?));
        }
        if let Some(schema) = members.get("unevaluatedItems") {
            found.push(Keyword::UnevaluatedItems(self.node(schema, resource, "unevaluatedItems")?));
        }
        self.program.needs_marks |= !found.is_empty();
        Ok(found)
    }
}

/// A keyword as it is written.
#[derive(Clone, Copy)]
struct Written<'s, 'n> {
    name: &'n str,
    value: &'s Value,
    members: &'s Map<String, Value>,
    draft: Draft,
    resource: ResourceId,
}

impl<'s> Written<'s, '_> {
    fn wrong(&self, what: &str) -> NotChecked {
        not_a_schema(self.name, what)
    }

    fn text(&self) -> Compiled<&'s str> {
        self.value.as_str().ok_or_else(|| self.wrong("must be a string"))
    }

    fn truth(&self) -> Compiled<bool> {
        self.value.as_bool().ok_or_else(|| self.wrong("must be true or false"))
    }

    fn object(&self) -> Compiled<&'s Map<String, Value>> {
        self.value.as_object().ok_or_else(|| self.wrong("must be an object"))
    }

    /// A whole number that is not negative; `2.0` is one.
    fn count(&self) -> Compiled<u64> {
        let whole = self.value.as_u64().or_else(|| {
            let float = self.value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..1e15).contains(float))?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and in range")]
            Some(float as u64)
        });
        whole.ok_or_else(|| self.wrong("must be a whole number that is not negative"))
    }

    fn names(&self) -> Compiled<Vec<&'s str>> {
        let wrong = || self.wrong("must be a list of names");
        let list = self.value.as_array().ok_or_else(wrong)?;
        list.iter().map(|name| name.as_str().ok_or_else(wrong)).collect()
    }

    /// Each type once: there are only seven.
    fn types(&self) -> Compiled<Vec<Type>> {
        let list = self.value.as_array().map_or(std::slice::from_ref(self.value), Vec::as_slice);
        let mut types = Vec::new();
        for name in list {
            let named = name.as_str().and_then(Type::named).ok_or_else(|| {
                self.wrong(&format!("has a type that does not exist: {}", shortened(&name.to_string())))
            })?;
            if !types.contains(&named) {
                types.push(named);
            }
        }
        Ok(types)
    }

    fn number_rule(&self) -> Compiled<Option<Keyword<'s>>> {
        let is_exclusive = |name: &str| self.members.get(name) == Some(&Value::Bool(true));
        let number = match self.value {
            Value::Number(number) => number,
            // In draft-04 these say how `minimum` and `maximum` are meant.
            Value::Bool(_) if self.draft == Draft::Draft4 => return Ok(None),
            _ => return Err(self.wrong("must be a number")),
        };
        Ok(Some(match self.name {
            "minimum" if is_exclusive("exclusiveMinimum") => Keyword::ExclusiveMinimum(number),
            "maximum" if is_exclusive("exclusiveMaximum") => Keyword::ExclusiveMaximum(number),
            "minimum" => Keyword::Minimum(number),
            "maximum" => Keyword::Maximum(number),
            "exclusiveMinimum" => Keyword::ExclusiveMinimum(number),
            "exclusiveMaximum" => Keyword::ExclusiveMaximum(number),
            _ if number.as_f64().is_some_and(|divisor| divisor > 0.0) => Keyword::MultipleOf(number),
            _ => return Err(self.wrong("must be greater than 0")),
        }))
    }
}

fn not_a_schema(keyword: &str, what: &str) -> NotChecked {
    NotChecked::NotASchema(format!("`{keyword}` {what}"))
}

/// As much of a text as fits into a message.
pub(crate) fn shortened(text: &str) -> String {
    const LONGEST: usize = 100;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
