//! The index of tools: what changes in it, and what is found.

use super::*;

impl ToolIndex {
    /// Replaces all tools.
    pub(crate) fn replace_all(&mut self, tools: Vec<ToolRecord>) {
        self.retain(&tools.iter().map(|tool| tool.id).collect());
        self.insert_all(tools);
    }
}

pub(crate) fn record(id: i64, name: &str) -> ToolRecord {
    ToolRecord {
        id: ToolId(id),
        name: format!("s.{name}"),
        original_name: name.to_owned(),
        source_server_id: ServerId::fresh(),
        server_name: "s".to_owned(),
        description: None,
        input_schema: None,
        definition: registry::RawJson::parse("{}").unwrap(),
        is_external: true,
        enabled: true,
        is_classified: false,
        skills: Vec::new(),
        confidences: Vec::new(),
        primary_skill: None,
        classified_by: None,
        position: 0,
        text_hash: "today".to_owned(),
        embedding_model: None,
    }
}

#[test]
fn a_tool_is_to_be_classified_once_it_has_a_vector_and_until_it_was() {
    let mut tool_index = ToolIndex::new(2);
    tool_index.replace_all(vec![record(1, "a"), record(2, "b")]);
    let pending = |tool_index: &mut ToolIndex, mark: &str| tool_index.unclassified(mark, 10).len();
    assert_eq!(pending(&mut tool_index, "m"), 0, "without vectors nothing can be said");
    let hash = tool_index.entries[&ToolId(1)].hash;
    assert!(tool_index.set_vector(ToolId(1), hash, &[1.0, 0.0]));
    assert_eq!(pending(&mut tool_index, "m"), 1);
    let classified = |text_hash: &str| Classified {
        tool: ToolId(1),
        text_hash: text_hash.to_owned(),
        skills: vec!["x".to_owned()],
        confidences: vec![0.9],
        primary: Some("x".to_owned()),
        by: "m".to_owned(),
    };
    tool_index.set_skills(classified("yesterday"));
    assert_eq!(pending(&mut tool_index, "m"), 1, "that was another text");
    tool_index.set_skills(classified("today"));
    assert_eq!((pending(&mut tool_index, "m"), pending(&mut tool_index, "other")), (0, 1));
    assert_eq!(tool_index.members().len(), 1);
}

fn texts(tool_index: &ToolIndex) -> Vec<ToolId> {
    tool_index.missing_vectors(10).into_iter().map(|it| it.tool).collect()
}

#[test]
fn only_a_text_that_the_model_refuses_is_given_up() {
    let mut tool_index = ToolIndex::new(2);
    tool_index.replace_all(vec![record(1, "a"), record(2, "b"), record(3, "c")]);
    let hash = |tool_index: &ToolIndex, tool: i64| tool_index.entries[&ToolId(tool)].hash;
    let old = hash(&tool_index, 1);
    tool_index.insert_all([ToolRecord { description: Some("new".to_owned()), ..record(1, "a") }]);
    assert!(!tool_index.set_made_vector(ToolId(1), old, Some(&[1.0, 0.0])));
    assert!(!tool_index.set_made_vector(ToolId(1), old, None));
    assert!(!tool_index.has_given_up(&ToolId(1)), "its text changed meanwhile, so the model has not seen it");
    let (second, third) = (hash(&tool_index, 2), hash(&tool_index, 3));
    assert!(!tool_index.set_made_vector(ToolId(2), second, None));
    assert!(!tool_index.set_made_vector(ToolId(3), third, Some(&[0.0, 0.0])));
    assert_eq!(texts(&tool_index), [ToolId(1)]);
    assert!(tool_index.has_given_up(&ToolId(2)) && tool_index.has_given_up(&ToolId(3)));
    // Vectors of another length: everything is to be made again.
    let server = tool_index.servers_missing_vectors(10).remove(0);
    tool_index.set_server_vector(&server.0, server.1, None);
    assert!(tool_index.servers_missing_vectors(10).is_empty());
    assert_eq!(tool_index.note_dimension(&[None, Some(vec![1.0; 2])]), None);
    assert_eq!(tool_index.note_dimension(&[None, Some(vec![1.0; 3])]), Some((2, 3)));
    assert_eq!((texts(&tool_index).len(), tool_index.servers_missing_vectors(10).len()), (3, 1));
    tool_index.set_server_vector(&server.0, server.1, Some(&[1.0; 3]));
    assert!(tool_index.servers_missing_vectors(10).is_empty(), "and has the new length");
    assert_eq!(tool_index.dimension(), 3);
}

#[test]
fn nothing_is_kept_of_removed_tools_and_servers() {
    let mut tool_index = ToolIndex::new(2);
    let (one, two) = (record(1, "a"), record(2, "b"));
    let servers = [one.source_server_id, two.source_server_id];
    tool_index.describe_servers(servers.map(|server| (server, "about it".to_owned())));
    tool_index.replace_all(vec![one, two.clone()]);
    let hash = tool_index.entries[&ToolId(1)].hash;
    tool_index.set_made_vector(ToolId(1), hash, Some(&[1.0, 0.0]));
    assert_eq!(tool_index.unclassified("m", 10).len(), 1);
    tool_index.describe_server(servers[0], None);
    tool_index.retain_of(servers[0], &HashSet::new());
    assert_eq!((tool_index.about_servers.len(), tool_index.by_server.len(), tool_index.entries.len()), (1, 1, 1));
    assert!(tool_index.unclassified.is_empty());
    let moved = ToolRecord { source_server_id: ServerId::fresh(), ..two };
    let server = moved.source_server_id;
    tool_index.insert_all([moved]);
    assert_eq!(tool_index.by_server.keys().collect::<Vec<_>>(), [&server]);
    tool_index.describe_servers([]);
    tool_index.replace_all(Vec::new());
    assert!(tool_index.about_servers.is_empty() && tool_index.by_server.is_empty() && tool_index.by_point.is_empty());
}
