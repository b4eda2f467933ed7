//! Classifications of a language model are stored, so that the model is not asked twice.

use registry::{LlmClassification, SuggestionRecord, Timestamp};

use crate::fixture::{RegistryFixture, on_both};

on_both! {
    a_classification_is_kept_for_its_classifier_alone,
    a_suggestion_waits_until_somebody_decides,
}

fn llm_classification(server: &str, classifier: &str, skills: &[(&str, f64)]) -> LlmClassification {
    let skills = skills.iter().map(|(id, confidence)| ((*id).to_owned(), *confidence)).collect();
    LlmClassification {
        server: server.to_owned(),
        text_hash: "h".to_owned(),
        classifier: classifier.to_owned(),
        skills,
    }
}

async fn a_classification_is_kept_for_its_classifier_alone(fixture: RegistryFixture) {
    let store = &fixture.store;
    let (first, none) =
        (llm_classification("one", "a", &[("files", 0.9), ("git", 0.25)]), llm_classification("two", "a", &[]));
    let others = llm_classification("one", "b", &[("web", 1.0)]);
    store.put_llm_classifications(vec![first.clone(), none.clone(), others.clone()]).await.unwrap();
    let again = fixture.opened_again().await;
    assert_eq!(again.llm_classifications("a").await.unwrap(), [first, none.clone()]);
    let changed = llm_classification("one", "a", &[]);
    again.put_llm_classifications(vec![changed.clone()]).await.unwrap();
    assert_eq!(again.llm_classifications("a").await.unwrap(), [changed, none]);
    assert_eq!(again.llm_classifications("b").await.unwrap(), [others]);
    assert_eq!(again.llm_classifications("c").await.unwrap(), []);
}

async fn a_suggestion_waits_until_somebody_decides(fixture: RegistryFixture) {
    let store = &fixture.store;
    let bees = SuggestionRecord {
        id: "bees".to_owned(),
        name: "Beekeeping".to_owned(),
        description: "Hives".to_owned(),
        tools: vec!["garden.count_bees".to_owned()],
        rejected: false,
        suggested_at: Timestamp::now(),
    };
    store.put_suggestion(&bees).await.unwrap();
    let no = SuggestionRecord { rejected: true, ..bees };
    store.put_suggestion(&no).await.unwrap();
    assert_eq!(fixture.opened_again().await.suggestions().await.unwrap(), [no]);
    assert!(store.delete_suggestion("bees").await.unwrap());
    assert!(!store.delete_suggestion("bees").await.unwrap());
}
