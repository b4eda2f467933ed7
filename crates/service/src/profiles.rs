//! Profiles: named views for some clients. They come from the config file and from the registry, and take effect in the
//! fleet ([`aggregator::Fleet::set_profile`]).
//!
//! As with servers, a profile of the registry is used instead of one of the config file with the same name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aggregator::View;
use catalog::profile::{MAX_PROFILES, ProfileProblem, Unmatched, is_profile_name};
use catalog::{Kind, NameStyle, Profile, ProfileSpec, Role, ServerState};
use registry::{Actor, AuditNote, Origin, ProfileRecord, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::ServiceContext;
use crate::servers::to_the_end;
use crate::{Error, Event, Problem, Service};

/// The principals that are bound to profiles: each with its name, its role and its profile.
pub type BoundPrincipals = Arc<dyn Fn() -> Vec<BoundPrincipal> + Send + Sync>;

/// A principal that is bound to a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundPrincipal {
    /// Its name.
    pub name: Arc<str>,
    /// What it may do.
    pub role: Role,
    /// Its profile.
    pub profile: Arc<str>,
}

/// All profiles, by their source.
#[derive(Default)]
pub(crate) struct ProfileLayers {
    layers: Mutex<Layers>,
    /// Serializes changes.
    changing: tokio::sync::Mutex<()>,
    bound_principals: Mutex<Option<BoundPrincipals>>,
}

#[derive(Default)]
struct Layers {
    of_config: BTreeMap<String, ProfileSpec>,
    registered: BTreeMap<String, (ProfileSpec, Timestamp)>,
}

/// A profile, and what its clients see now.
#[derive(Debug, Clone, Serialize)]
pub struct ProfileView {
    /// Its name.
    pub name: String,
    /// Where it was defined.
    pub origin: Origin,
    /// How it is written: the members that restrict something.
    #[serde(flatten)]
    pub spec: Value,
    /// What its clients see now.
    pub sees: ProfileCounts,
    /// The principals that are bound to it.
    pub bound: Vec<String>,
    /// Patterns that match nothing now.
    pub warnings: Vec<String>,
    /// When it was last changed, if it is registered.
    pub updated_at: Option<Timestamp>,
}

/// What the clients of a profile see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProfileCounts {
    /// Servers, connected or not.
    pub servers: usize,
    /// Tools.
    pub tools: usize,
    /// Prompts.
    pub prompts: usize,
    /// Listed resources.
    pub resources: usize,
    /// Resource templates.
    pub resource_templates: usize,
}

impl ProfileLayers {
    fn layers(&self) -> MutexGuard<'_, Layers> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bound_principals(&self) -> Vec<BoundPrincipal> {
        let bound = self.bound_principals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        bound.map(|bound| bound()).unwrap_or_default()
    }

    /// The profile in effect, where it was defined, and when it was last changed.
    fn find(&self, name: &str) -> Option<(ProfileSpec, Origin, Option<Timestamp>)> {
        let layers = self.layers();
        match (layers.registered.get(name), layers.of_config.get(name)) {
            (Some((spec, at)), _) => Some((spec.clone(), Origin::Registered, Some(*at))),
            (None, Some(spec)) => Some((spec.clone(), Origin::Config, None)),
            (None, None) => None,
        }
    }

    /// The names of all profiles, in order.
    fn names(&self) -> Vec<String> {
        let layers = self.layers();
        let mut names: Vec<String> = layers.registered.keys().chain(layers.of_config.keys()).cloned().collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Puts the profiles of the registry and of the config file into effect.
pub(crate) async fn open(context: &Arc<ServiceContext>, of_config: Vec<(String, ProfileSpec)>) -> Result<(), Error> {
    context.profiles.layers().of_config = of_config.into_iter().collect();
    read_registered(context).await?;
    for name in context.profiles.names() {
        apply(context, &name).await;
    }
    report_shadowed(context);
    Ok(())
}

/// Reads the profiles of the registry. One that cannot be read does not exist: nobody sees anything through it.
async fn read_registered(context: &ServiceContext) -> Result<(), Error> {
    let mut registered = BTreeMap::new();
    for ProfileRecord { name, spec, updated_at } in context.store.profiles().await? {
        match ProfileSpec::read(&spec) {
            Ok(spec) => drop(registered.insert(name, (spec, updated_at))),
            Err(problems) => {
                let problem = problems.first().map(ToString::to_string).unwrap_or_default();
                tracing::error!(profile = name, problem, "a stored profile is not valid and is not used; set it again");
            }
        }
    }
    context.profiles.layers().registered = registered;
    Ok(())
}

/// Replaces the profiles of the config file, whose content has changed.
pub(crate) async fn follow_config(context: &Arc<ServiceContext>, of_config: &[(String, ProfileSpec)]) {
    let _turn = context.profiles.changing.lock().await;
    let of_config: BTreeMap<String, ProfileSpec> = of_config.iter().cloned().collect();
    let before = std::mem::replace(&mut context.profiles.layers().of_config, of_config.clone());
    if before == of_config {
        return;
    }
    report_shadowed(context);
    for name in before.keys().chain(of_config.keys()).filter(|name| before.get(*name) != of_config.get(*name)) {
        apply(context, name).await;
        context.events.emit(match of_config.contains_key(name) {
            true => Event::ProfileChanged { name: name.clone() },
            false => Event::ProfileRemoved { name: name.clone() },
        });
    }
}

fn report_shadowed(context: &ServiceContext) {
    let layers = context.profiles.layers();
    for name in layers.of_config.keys().filter(|name| layers.registered.contains_key(*name)) {
        tracing::error!(profile = %name, "the config file has a profile with a name that is registered; the registered one is used");
    }
}

/// Puts the profile of that name into effect as it is defined now.
async fn apply(context: &ServiceContext, name: &str) {
    let spec = context.profiles.find(name).map(|(spec, ..)| spec);
    let profile = spec.map(|spec| Profile::new(name, spec));
    context.fleet.set_profile(name, profile).await;
}

/// The problems with a profile of a request body, at their places.
pub(crate) fn problems_with_profile(name: &str, spec: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !is_profile_name(name) {
        let msg = format!("`{name}` is not a name of a profile; use 1 to 64 letters, digits, `_`, `-` and `.`");
        problems.push(Problem { loc: vec!["path".to_owned(), "profile".to_owned()], msg, kind: "value_error" });
    }
    problems.extend(ProfileSpec::read(spec).err().into_iter().flatten().map(of_body));
    problems
}

fn of_body(problem: ProfileProblem) -> Problem {
    let loc = ["body".to_owned()].into_iter().chain(problem.member).collect();
    Problem { loc, msg: problem.what, kind: "value_error" }
}

impl Service {
    /// Sets how to find out which principals are bound to profiles.
    pub fn set_bound_principals(&self, bound: BoundPrincipals) {
        *self.context.profiles.bound_principals.lock().unwrap_or_else(PoisonError::into_inner) = Some(bound);
    }

    /// Principals that are bound to profiles that do not exist: they are refused.
    pub fn principals_without_profile(&self) -> Vec<BoundPrincipal> {
        let view = self.fleet.view();
        let bound = self.context.profiles.bound_principals();
        bound.into_iter().filter(|bound| view.profile(&bound.profile).is_none()).collect()
    }

    /// All profiles, in the order of their names.
    pub fn profiles(&self) -> Vec<ProfileView> {
        self.context.profiles.names().iter().filter_map(|name| self.profile(name).ok()).collect()
    }

    /// One profile.
    pub fn profile(&self, name: &str) -> Result<ProfileView, Error> {
        let not_found = || Error::ProfileNotFound { name: name.to_owned() };
        let (spec, origin, updated_at) = self.context.profiles.find(name).ok_or_else(not_found)?;
        let view = self.fleet.view();
        let profile = Profile::new(name, spec);
        let bound = self.context.profiles.bound_principals();
        Ok(ProfileView {
            name: name.to_owned(),
            origin,
            spec: profile.spec().to_json(),
            sees: counts(&self.fleet.view_for(Some(name))),
            bound: names_of(bound, name),
            warnings: profile.unmatched(&view.snapshot).iter().map(|it| it.problem.to_string()).collect(),
            updated_at,
        })
    }

    /// Creates a profile, or replaces the one of that name; returns whether it is new. Connected clients are notified.
    pub async fn put_profile(
        self: Arc<Self>,
        by: &Actor,
        name: &str,
        spec: Value,
    ) -> Result<(ProfileView, bool), Error> {
        let (by, name) = (by.clone(), name.to_owned());
        to_the_end(async move { self.put_checked_profile(&by, &name, &spec).await }).await
    }

    async fn put_checked_profile(&self, by: &Actor, name: &str, spec: &Value) -> Result<(ProfileView, bool), Error> {
        check_unbound(by)?;
        let problems = problems_with_profile(name, spec);
        let (true, Ok(read)) = (problems.is_empty(), ProfileSpec::read(spec)) else {
            return Err(Error::Validation { problems });
        };
        let unmatched = Profile::new(name, read.clone()).unmatched(&self.fleet.view().snapshot);
        let certain: Vec<Unmatched> = unmatched.into_iter().filter(|unmatched| unmatched.is_certain).collect();
        if !certain.is_empty() {
            let problems = certain.into_iter().map(|unmatched| of_body(unmatched.problem)).collect();
            return Err(Error::Validation { problems });
        }
        let layers = &self.context.profiles;
        let _turn = layers.changing.lock().await;
        let before = layers.find(name);
        match &before {
            Some((_, Origin::Config, _)) => return Err(Error::ProfileReadOnly { name: name.to_owned() }),
            None if layers.names().len() >= MAX_PROFILES => {
                let msg = format!("there are {MAX_PROFILES} profiles, which is the limit; remove one first");
                let loc = vec!["path".to_owned(), "profile".to_owned()];
                return Err(Error::Validation { problems: vec![Problem { loc, msg, kind: "too_long" }] });
            }
            _ => {}
        }
        let mut change = self.store.transaction("store a profile").await?;
        let record = change.put_profile(name, &read.to_json()).await?;
        let details = json!({ "before": before.as_ref().map(|(spec, ..)| spec.to_json()), "after": read.to_json() });
        change.commit_audited(AuditNote::new(by, "profile.set", Some(name), Some(details))).await?;
        layers.layers().registered.insert(name.to_owned(), (read, record.updated_at));
        apply(&self.context, name).await;
        self.events.emit(Event::ProfileChanged { name: name.to_owned() });
        Ok((self.profile(name)?, before.is_none()))
    }

    /// Removes a profile. Its clients see nothing from then on. One that a principal is bound to stays: without it, the
    /// principal could not use the service any more, and the last administrator could not undo that.
    pub async fn remove_profile(self: Arc<Self>, by: &Actor, name: &str) -> Result<(), Error> {
        let (by, name) = (by.clone(), name.to_owned());
        to_the_end(async move { self.remove_unbound_profile(&by, &name).await }).await
    }

    async fn remove_unbound_profile(&self, by: &Actor, name: &str) -> Result<(), Error> {
        check_unbound(by)?;
        let layers = &self.context.profiles;
        let _turn = layers.changing.lock().await;
        match layers.find(name) {
            None => return Err(Error::ProfileNotFound { name: name.to_owned() }),
            Some((_, Origin::Config, _)) => return Err(Error::ProfileReadOnly { name: name.to_owned() }),
            Some((_, Origin::Registered, _)) => {}
        }
        // One of the config file with the same name takes its place.
        let has_substitute = layers.layers().of_config.contains_key(name);
        let bound = names_of(layers.bound_principals(), name);
        if !bound.is_empty() && !has_substitute {
            return Err(Error::ProfileInUse { name: name.to_owned(), bound });
        }
        let mut change = self.store.transaction("remove a profile").await?;
        change.delete_profile(name).await?;
        change.commit_audited(AuditNote::new(by, "profile.remove", Some(name), None)).await?;
        layers.layers().registered.remove(name);
        apply(&self.context, name).await;
        self.events.emit(Event::ProfileRemoved { name: name.to_owned() });
        Ok(())
    }

    /// Reads the profiles of the registry again, after an import.
    pub(crate) async fn reload_profiles(&self) -> Result<(), Error> {
        let _turn = self.context.profiles.changing.lock().await;
        read_registered(&self.context).await?;
        for name in self.context.profiles.names() {
            apply(&self.context, &name).await;
        }
        Ok(())
    }
}

/// The names of the principals that are bound to a profile.
fn names_of(bound: Vec<BoundPrincipal>, profile: &str) -> Vec<String> {
    let bound = bound.into_iter().filter(|bound| *bound.profile == *profile);
    bound.map(|bound| bound.name.to_string()).collect()
}

/// Whoever is bound to a profile cannot change any: it could leave its own.
fn check_unbound(by: &Actor) -> Result<(), Error> {
    match by.principal.profile() {
        None => Ok(()),
        Some(profile) => Err(Error::BoundToProfile { profile: profile.to_string() }),
    }
}

fn counts(view: &View) -> ProfileCounts {
    let snapshot = &view.snapshot;
    let count = |kind| snapshot.listed(kind, NameStyle::Canonical).count();
    ProfileCounts {
        servers: snapshot.servers().iter().filter(|server| server.state != ServerState::Removed).count(),
        tools: count(Kind::Tool),
        prompts: count(Kind::Prompt),
        resources: count(Kind::Resource),
        resource_templates: count(Kind::Template),
    }
}
