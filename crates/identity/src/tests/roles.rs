//! What claims mean: roles, profiles, names.

use catalog::Role;
use serde_json::{Value, json};

use super::issuer::{ISSUER, claims};
use crate::claims::{ClaimRules, Verified};
use crate::verifier::now;
use crate::{Rejection, scope_of};

fn read(rules: &ClaimRules, others: &Value) -> Result<Verified, Rejection> {
    Verified::read(claims(others).as_object().unwrap(), ISSUER, rules, now())
}

fn role(rules: &ClaimRules, others: &Value) -> Role {
    read(rules, others).unwrap().principal().role()
}

#[test]
fn roles_come_from_scopes() {
    let rules = ClaimRules::default();
    for (others, expected) in [
        (json!({}), Role::User),
        (json!({"scope": "openid mcp:user"}), Role::User),
        (json!({"scope": "mcp:operator mcp:user"}), Role::Operator),
        (json!({"scope": "mcp:admin"}), Role::Admin),
        (json!({"scope": ["mcp:admin"]}), Role::Admin),
        (json!({"scp": "mcp:operator"}), Role::Operator),
        (json!({"scope": "admin"}), Role::User),
        (json!({"scope": "mcp:Admin xmcp:admin mcp:admin2"}), Role::User),
        (json!({"roles": ["admin"]}), Role::User),
    ] {
        assert_eq!(role(&rules, &others), expected, "{others}");
    }
    assert_eq!(scope_of(Role::Operator), "mcp:operator");
}

#[test]
fn with_a_claim_for_roles_scopes_give_none() {
    let rules = |name: &str| ClaimRules { role_claim: Some(name.to_owned()), ..ClaimRules::default() };
    for (name, others, expected) in [
        ("roles", json!({"roles": "operator"}), Role::Operator),
        ("roles", json!({"roles": ["staff", "mcp:admin"]}), Role::Admin),
        ("roles", json!({"roles": ["user", "admin"]}), Role::Admin),
        ("roles", json!({"scope": "mcp:admin"}), Role::User),
        ("roles", json!({"roles": {"admin": true}}), Role::User),
        ("realm_access.roles", json!({"realm_access": {"roles": ["operator"]}}), Role::Operator),
        ("https://x.example/roles", json!({"https://x.example/roles": ["admin"]}), Role::Admin),
    ] {
        assert_eq!(role(&rules(name), &others), expected, "{name} {others}");
    }
}

#[test]
fn a_profile_comes_from_a_claim_or_from_the_role() {
    let rules = ClaimRules {
        profile_claim: Some("team".to_owned()),
        profile_of_role: vec![(Role::User, "readers".to_owned())],
        ..ClaimRules::default()
    };
    let profile = |others: Value| read(&rules, &others).map(|read| read.principal().profile().map(ToString::to_string));
    assert_eq!(profile(json!({"team": "dev"})), Ok(Some("dev".to_owned())));
    assert_eq!(profile(json!({"team": ["dev"]})), Ok(Some("dev".to_owned())));
    assert_eq!(profile(json!({})), Ok(Some("readers".to_owned())));
    assert_eq!(profile(json!({"scope": "mcp:admin"})), Ok(None));
    for unclear in [json!(7), json!(["a", "b"]), json!([]), json!({}), json!("")] {
        assert_eq!(profile(json!({"team": unclear})), Err(Rejection::Profile), "{unclear} must not mean everything");
    }
}

#[test]
fn people_have_names() {
    let name = |others: Value| read(&ClaimRules::default(), &others).unwrap().principal().name().to_string();
    assert_eq!(name(json!({})), "42");
    assert_eq!(name(json!({"email": "ann@x.example", "name": "Ann"})), "ann@x.example");
    assert_eq!(name(json!({"preferred_username": "a\u{1b}[31mnn"})), "a[31mnn");
    assert_eq!(name(json!({"preferred_username": "\n", "name": "x".repeat(100)})).len(), 80);
}
