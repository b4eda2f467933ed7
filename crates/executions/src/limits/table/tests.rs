//! Which limits a call counts against, and what a change of limits does to what was counted.

use std::time::Duration;

use registry::CallRate;

use super::*;

/// Noon of a day.
const NOON: u64 = (20_000 * 24 + 12) * 3600;

fn at(millis: u64) -> Now {
    Now { elapsed: Duration::from_millis(millis), utc: Duration::from_secs(NOON) + Duration::from_millis(millis) }
}

fn record(kind: LimitKind, name: &str, limit: CallLimit) -> LimitRecord {
    LimitRecord { kind, name: name.to_owned(), limit, updated_at: Timestamp::from_micros(0) }
}

fn concurrent(most: u32) -> CallLimit {
    CallLimit { concurrent: Some(most), ..CallLimit::default() }
}

fn per_day(most: u64) -> CallLimit {
    CallLimit { per_day: Some(most), ..CallLimit::default() }
}

fn per_second(calls: f64) -> CallLimit {
    CallLimit { per_second: CallRate::per_second(calls), ..CallLimit::default() }
}

fn table(limits: &[(LimitKind, &str, CallLimit)]) -> Table {
    let mut table = Table::default();
    limits.iter().for_each(|(kind, name, limit)| table.put(&record(*kind, name, *limit)));
    table
}

fn call<'c>(identity: &'c str, server: &'c str, tool: &'c str) -> CallSubjects<'c> {
    CallSubjects { identity, profile: None, server, tool }
}

/// Counts a call that nothing else refuses.
fn admit(table: &mut Table, call: CallSubjects<'_>, now: Now) -> Result<RunningCall, LimitExcess> {
    table.admit(call, now, || Ok::<_, ()>(())).expect("nothing else refuses it")
}

/// What refuses a call: its kind, its name and the bound.
fn refused(table: &mut Table, call: CallSubjects<'_>, now: Now) -> Option<(LimitKind, String, Bound)> {
    admit(table, call, now).err().map(|excess| (excess.kind, excess.name.to_string(), excess.bound))
}

/// The calls of the day of a name, and those in progress.
fn use_of(table: &Table, kind: LimitKind, name: &str) -> Option<(u64, u32)> {
    let views = table.view(at(0)).into_iter().filter(|view| view.record.kind == kind);
    let mut uses = views.flat_map(|view| view.uses);
    uses.find(|one| one.name == name).map(|one| (one.today, one.running))
}

#[test]
fn a_default_counts_each_name_apart_and_an_own_limit_replaces_it_as_a_whole() {
    let limits = [(LimitKind::Identity, EACH, per_day(1)), (LimitKind::Identity, "ann", concurrent(1))];
    let mut table = table(&limits);
    let ben = call("ben", "s", "t");
    drop(admit(&mut table, ben, at(0)).unwrap());
    assert_eq!(refused(&mut table, ben, at(0)), Some((LimitKind::Identity, "ben".to_owned(), Bound::PerDay(1))));
    drop(admit(&mut table, call("cat", "s", "t"), at(0)).expect("another one has its own count"));
    for _ in 0..3 {
        drop(admit(&mut table, call("ann", "s", "t"), at(0)).expect("the default does not count for her"));
    }
    let running = admit(&mut table, call("ann", "s", "t"), at(0)).unwrap();
    let refusal = (LimitKind::Identity, "ann".to_owned(), Bound::Concurrent(1));
    assert_eq!(refused(&mut table, call("ann", "s", "t"), at(0)), Some(refusal));
    drop(running);
    assert_eq!(refused(&mut table, call("ann", "s", "t"), at(0)), None, "the call has ended");
}

#[test]
fn every_kind_counts_by_its_name() {
    for (kind, name) in [
        (LimitKind::Identity, "ann"),
        (LimitKind::Profile, "dev"),
        (LimitKind::Server, "git"),
        (LimitKind::Tool, "git.log"),
    ] {
        let mut table = table(&[(kind, name, per_day(1))]);
        let call = CallSubjects { profile: Some("dev"), ..call("ann", "git", "log") };
        drop(admit(&mut table, call, at(0)).unwrap());
        assert_eq!(refused(&mut table, call, at(0)), Some((kind, name.to_owned(), Bound::PerDay(1))));
        let other = CallSubjects { identity: "ben", profile: None, server: "time", tool: "now" };
        assert_eq!(refused(&mut table, other, at(0)), None, "{kind}");
    }
}

#[test]
fn a_refused_call_counts_against_none_of_its_limits() {
    let limits = [
        (LimitKind::Identity, EACH, CallLimit { per_day: Some(100), ..per_second(100.0) }),
        (LimitKind::Server, "git", per_day(1)),
    ];
    let mut table = table(&limits);
    let call = call("ann", "git", "log");
    drop(admit(&mut table, call, at(0)).unwrap());
    for _ in 0..3 {
        assert!(refused(&mut table, call, at(0)).is_some());
    }
    let also = table.admit(CallSubjects { server: "time", ..call }, at(0), || Err("something else refuses it"));
    assert_eq!(also.unwrap_err(), "something else refuses it");
    assert_eq!(use_of(&table, LimitKind::Identity, "ann"), Some((1, 0)));
    let views = table.view(at(0));
    assert_eq!((views[0].refused, views[1].refused), (0, 3));
    assert_eq!(views[0].uses[0].available, Some(99));
    assert!(table.refused().contains(&(LimitKind::Server, "per_day", 3)), "{:?}", table.refused());
}

#[test]
fn of_several_refusing_limits_the_one_that_lasts_longest_is_reported() {
    let limits = [(LimitKind::Identity, "ann", per_second(1.0)), (LimitKind::Tool, "git.log", per_second(0.1))];
    let mut table = table(&limits);
    let call = call("ann", "git", "log");
    drop(admit(&mut table, call, at(0)).unwrap());
    let excess = admit(&mut table, call, at(400)).unwrap_err();
    assert_eq!((excess.kind, excess.retry_after), (LimitKind::Tool, Duration::from_millis(9_600)));
    assert!(admit(&mut table, call, at(10_000)).is_ok());
}

#[test]
fn a_changed_limit_keeps_what_was_counted_and_a_removed_one_forgets_it() {
    let mut table = table(&[(LimitKind::Identity, "ann", CallLimit { per_day: Some(5), ..concurrent(5) })]);
    let call = call("ann", "git", "log");
    let running = admit(&mut table, call, at(0)).unwrap();
    table.put(&record(LimitKind::Identity, "ann", concurrent(1)));
    let refusal = (LimitKind::Identity, "ann".to_owned(), Bound::Concurrent(1));
    assert_eq!(refused(&mut table, call, at(0)), Some(refusal));
    table.put(&record(LimitKind::Identity, "ann", per_day(1)));
    assert!(refused(&mut table, call, at(0)).is_some());
    assert_eq!(table.view(at(0))[0].refused, 2);
    table.remove(LimitKind::Identity, "ann");
    assert!(table.is_empty());
    table.put(&record(LimitKind::Identity, "ann", CallLimit { per_day: Some(1), ..concurrent(1) }));
    let again = admit(&mut table, call, at(0)).expect("it begins again");
    drop(running);
    assert_eq!(use_of(&table, LimitKind::Identity, "ann"), Some((1, 1)), "a call counts where it was counted");
    drop(again);
    assert_eq!(use_of(&table, LimitKind::Identity, "ann"), Some((1, 0)));
}

#[test]
fn without_its_own_limit_a_name_counts_against_the_default() {
    let limits = [(LimitKind::Identity, EACH, per_day(2)), (LimitKind::Identity, "ann", per_day(9))];
    let mut table = table(&limits);
    for _ in 0..2 {
        drop(admit(&mut table, call("ann", "s", "t"), at(0)).unwrap());
    }
    table.remove(LimitKind::Identity, "ann");
    assert!(refused(&mut table, call("ann", "s", "t"), at(0)).is_some(), "what was counted still counts");
    table.remove(LimitKind::Identity, EACH);
    assert!(table.is_empty() && table.kinds.iter().all(|limits| limits.subjects.is_empty()));
}

#[test]
fn what_is_counted_per_day_is_stored_once_and_restored() {
    let limits = [(LimitKind::Identity, EACH, per_day(9)), (LimitKind::Server, EACH, per_second(1000.0))];
    let mut before = table(&limits);
    for _ in 0..3 {
        drop(admit(&mut before, call("ann", "s", "t"), at(0)).unwrap());
    }
    let stored = before.take_unsaved();
    let expected = LimitCount { kind: LimitKind::Identity, name: "ann".to_owned(), day: 20_000, calls: 3 };
    assert_eq!(stored, [expected], "nothing limits the calls of a day of a server");
    assert!(before.take_unsaved().is_empty());
    before.put_back(&stored);
    drop(admit(&mut before, call("ann", "s", "t"), at(0)).unwrap());
    let stored = before.take_unsaved();
    assert_eq!((stored.len(), stored[0].calls), (1, 4), "what failed is stored with what came since");

    let mut after = table(&limits);
    after.restore(&stored[0], at(0));
    assert_eq!(use_of(&after, LimitKind::Identity, "ann"), Some((4, 0)));
}

#[test]
fn what_was_counted_follows_a_renamed_server() {
    let limits = [
        (LimitKind::Server, "old", per_day(1)),
        (LimitKind::Server, "older", per_day(1)),
        (LimitKind::Tool, EACH, per_day(1)),
    ];
    let mut table = table(&limits);
    drop(admit(&mut table, call("ann", "old", "t.u"), at(0)).unwrap());
    table.rename_server("old", "new");
    let names: Vec<_> = table.view(at(0)).into_iter().map(|view| view.record.name).collect();
    assert_eq!(names, ["new", "older", EACH]);
    assert_eq!(use_of(&table, LimitKind::Tool, "new.t.u"), Some((1, 0)));
    assert!(refused(&mut table, call("ann", "new", "t.u"), at(0)).is_some());
    let mut stored: Vec<_> = table.take_unsaved().into_iter().map(|count| count.name).collect();
    stored.sort();
    assert_eq!(stored, ["new", "new.t.u"]);
}

#[test]
fn the_names_that_are_remembered_are_bounded() {
    let limits = [(LimitKind::Identity, EACH, per_day(5)), (LimitKind::Identity, "own", per_day(5))];
    let mut table = table(&limits);
    let names: Vec<_> = (0..MAX_SUBJECTS + 5).map(|number| format!("i{number}")).collect();
    let running = admit(&mut table, call(&names[0], "s", "t"), at(0)).unwrap();
    for name in &names[1..] {
        drop(admit(&mut table, call(name, "s", "t"), at(0)).unwrap());
    }
    let subjects = &table.kinds[LimitKind::Identity as usize].subjects;
    assert!(subjects.len() <= MAX_SUBJECTS, "{}", subjects.len());
    assert!(subjects.contains_key("own") && subjects.contains_key(&*names[0]), "it has a limit, or a call");
    assert!(!subjects.contains_key(&*names[1]) && subjects.contains_key(&*names[MAX_SUBJECTS + 4]));
    drop(running);
    let view = &table.view(at(0))[0];
    assert_eq!(view.uses.len(), MAX_SHOWN_USES);
    assert!(view.counted > 8_000);
    let tomorrow = Now { elapsed: Duration::from_secs(1), utc: Duration::from_secs(NOON + 24 * 3600) };
    for name in (0..5_000).map(|number| format!("j{number}")) {
        drop(admit(&mut table, call(&name, "s", "t"), tomorrow).unwrap());
    }
    let subjects = &table.kinds[LimitKind::Identity as usize].subjects;
    assert!(subjects.contains_key("j0") && !subjects.contains_key(&*names[MAX_SUBJECTS + 4]), "what ended goes first");
}
