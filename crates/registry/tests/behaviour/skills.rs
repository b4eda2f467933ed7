//! Changed and created skills are stored.

use registry::{Error, Existing, Secrets, SkillRecord};

use crate::fixture::{RegistryFixture, on_both};

on_both! {
    a_skill_is_kept_changed_and_forgotten,
    skills_go_with_an_export,
}

fn skill(id: &str) -> SkillRecord {
    SkillRecord {
        id: id.to_owned(),
        name: "Beekeeping".to_owned(),
        description: "Hives, and who lives there".to_owned(),
        examples: vec!["count the bees".to_owned(), "zähle \u{1f41d}".to_owned()],
        enabled: true,
    }
}

async fn a_skill_is_kept_changed_and_forgotten(fixture: RegistryFixture) {
    let store = &fixture.store;
    store.put_skill(&skill("b")).await.unwrap();
    store.put_skill(&skill("a")).await.unwrap();
    let off = SkillRecord { enabled: false, examples: Vec::new(), ..skill("b") };
    store.put_skill(&off).await.unwrap();
    assert_eq!(fixture.opened_again().await.skills().await.unwrap(), [skill("a"), off]);
    assert!(store.delete_skill("a").await.unwrap());
    assert!(!store.delete_skill("a").await.unwrap());
    assert_eq!(store.skills().await.unwrap().len(), 1);
    for wrong in [skill(" "), SkillRecord { name: String::new(), ..skill("c") }] {
        assert!(matches!(store.put_skill(&wrong).await, Err(Error::Invalid { .. })));
    }
}

async fn skills_go_with_an_export(fixture: RegistryFixture) {
    fixture.store.put_skill(&skill("a")).await.unwrap();
    fixture.store.put_skill(&skill("b")).await.unwrap();
    let exported = fixture.store.export(Secrets::Masked).await.unwrap();
    let elsewhere = RegistryFixture::sqlite().await.unwrap();
    let mine = SkillRecord { name: "Mine".to_owned(), ..skill("a") };
    elsewhere.store.put_skill(&mine).await.unwrap();
    assert_eq!(elsewhere.store.import(&exported, Existing::Kept).await.unwrap().skills, 1);
    assert_eq!(elsewhere.store.skills().await.unwrap(), [mine, skill("b")]);
    assert_eq!(elsewhere.store.import(&exported, Existing::Replaced).await.unwrap().skills, 2);
    assert_eq!(elsewhere.store.skills().await.unwrap(), [skill("a"), skill("b")]);
}
