//! What a language model said is kept, so that it is not asked twice.

use registry::{Judgement, SuggestionRecord, Timestamp};

use crate::setting::{Setting, on_both};

on_both! {
    a_judgement_is_kept_for_its_judge_alone,
    a_suggestion_waits_until_somebody_decides,
}

fn judgement(server: &str, judge: &str, skills: &[(&str, f64)]) -> Judgement {
    let skills = skills.iter().map(|(id, confidence)| ((*id).to_owned(), *confidence)).collect();
    Judgement { server: server.to_owned(), text_hash: "h".to_owned(), judge: judge.to_owned(), skills }
}

async fn a_judgement_is_kept_for_its_judge_alone(setting: Setting) {
    let store = &setting.store;
    let (first, none) = (judgement("one", "a", &[("files", 0.9), ("git", 0.25)]), judgement("two", "a", &[]));
    let others = judgement("one", "b", &[("web", 1.0)]);
    store.put_judgements(vec![first.clone(), none.clone(), others.clone()]).await.unwrap();
    let again = setting.opened_again().await;
    assert_eq!(again.judgements("a").await.unwrap(), [first, none.clone()]);
    let changed = judgement("one", "a", &[]);
    again.put_judgements(vec![changed.clone()]).await.unwrap();
    assert_eq!(again.judgements("a").await.unwrap(), [changed, none]);
    assert_eq!(again.judgements("b").await.unwrap(), [others]);
    assert_eq!(again.judgements("c").await.unwrap(), []);
}

async fn a_suggestion_waits_until_somebody_decides(setting: Setting) {
    let store = &setting.store;
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
    assert_eq!(setting.opened_again().await.suggestions().await.unwrap(), [no]);
    assert!(store.delete_suggestion("bees").await.unwrap());
    assert!(!store.delete_suggestion("bees").await.unwrap());
}
