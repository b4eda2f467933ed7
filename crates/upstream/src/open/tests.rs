//! Whose question it is, whose turn it is, and what is left of requests that were given up.

use std::pin::Pin;

use protocol::Span;

use super::*;
use crate::caller::{Answered, Notice, Question};
use crate::connection::Connection;
use crate::failure::CallError;

const NONE: [u64; 0] = [];

/// A caller that is only told apart from others.
struct Somebody(Party);

impl Caller for Somebody {
    fn party(&self) -> Party {
        self.0
    }
    fn answered(&self, _: &[u8], _: Answered<'_>) {}
    fn failed(&self, _: &[u8], _: &CallError) {}
    fn cancelled(&self, _: &[u8]) {}
    fn noticed(&self, _: Notice<'_>) {}
    fn asked(&self, _: Question) {}
    fn withdrawn(&self, _: &Connection, _: &[u8], _: &Bytes, _: Span) {}
    fn flush(&self) {}
    fn catching_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        None
    }
}

fn among_others(client: u64) -> Party {
    Party { client, asker: client, is_alone: false }
}

impl Open {
    fn enter_for(&mut self, party: Party) -> u64 {
        let call = Call {
            caller: Arc::new(Somebody(party)),
            id: Box::from(&b"1"[..]),
            progress: None,
            party,
            since: Some(Instant::now()),
            is_held: false,
        };
        self.enter(Waiting::Caller(call))
    }

    /// A request that is sent at once, or held if it must wait.
    fn request(&mut self, client: u64) -> u64 {
        let party = among_others(client);
        let must_wait = self.must_wait(party);
        let number = self.enter_for(party);
        if must_wait {
            self.hold(number, Bytes::from(number.to_string()));
        }
        number
    }

    fn ask_ourselves(&mut self) -> u64 {
        self.enter(Waiting::Ourselves(oneshot::channel().0))
    }

    fn is_held(&self, number: u64) -> bool {
        self.get(number).is_some_and(|call| call.is_held)
    }

    fn released(&mut self) -> Vec<u64> {
        self.release().iter().map(|held| held.number).collect()
    }

    /// Makes the server one that serves one client at a time.
    fn ask_in_a_crowd(&mut self) {
        let (first, second) = (self.request(91), self.request(92));
        assert!(matches!(self.whose(None), Whose::Unclear));
        self.close(first);
        self.close(second);
    }
}

/// The client whose question it is.
fn client(whose: &Whose) -> Option<u64> {
    match whose {
        Whose::Caller(caller) => Some(caller.party().client),
        Whose::Nobodys | Whose::Unclear => None,
    }
}

#[test]
fn a_question_without_open_requests_is_nobodys() {
    let mut open = Open::default();
    assert!(matches!(open.whose(None), Whose::Nobodys));
    open.ask_ourselves();
    assert!(matches!(open.whose(None), Whose::Nobodys), "a question of our own is nobody's to be asked about");
}

#[test]
fn a_question_is_for_the_only_client_with_open_requests() {
    let mut open = Open::default();
    open.ask_ourselves();
    open.request(1);
    open.request(1);
    assert_eq!(client(&open.whose(None)), Some(1));
}

#[test]
fn a_question_that_could_be_for_several_is_for_none_of_them() {
    let mut open = Open::default();
    open.request(1);
    open.request(2);
    assert!(matches!(open.whose(None), Whose::Unclear));
}

#[test]
fn requests_of_one_person_over_several_connections_are_one_persons() {
    let mut open = Open::default();
    for connection in [1, 2] {
        open.enter_for(Party { client: connection, asker: 7, is_alone: false });
    }
    assert_eq!(client(&open.whose(None)), Some(2), "the latest is the least likely to be closing");
}

#[test]
fn a_question_on_the_stream_of_a_request_is_about_that_request() {
    let mut open = Open::default();
    let (first, second) = (open.request(1), open.request(2));
    assert_eq!(client(&open.whose(Some(first))), Some(1));
    assert_eq!(client(&open.whose(Some(second))), Some(2));
    assert_eq!(open.request(3), second + 1);
    assert!(!open.is_held(second + 1), "one that says what it asks about makes nobody wait");
    open.close(first);
    assert!(matches!(open.whose(Some(first)), Whose::Nobodys), "what is over asks nothing of others");
    let own = open.ask_ourselves();
    assert!(matches!(open.whose(Some(own)), Whose::Nobodys));
}

#[test]
fn servers_that_never_ask_serve_everybody_at_once() {
    let mut open = Open::default();
    let requests = [open.request(1), open.request(2), open.request(3)];
    assert!(requests.iter().all(|&number| !open.is_held(number)));
}

#[test]
fn a_server_that_asks_serves_one_client_at_a_time_from_then_on() {
    let mut open = Open::default();
    open.request(1);
    assert_eq!(client(&open.whose(None)), Some(1));
    let (own, others) = (open.request(1), open.request(2));
    assert!(!open.is_held(own), "its own client goes on");
    assert!(open.is_held(others));
    assert_eq!(client(&open.whose(None)), Some(1), "what was not sent cannot be asked about");
}

#[test]
fn a_question_about_nothing_makes_nobody_wait() {
    let mut open = Open::default();
    assert!(matches!(open.whose(None), Whose::Nobodys));
    open.request(1);
    let others = open.request(2);
    assert!(!open.is_held(others));
}

#[test]
fn a_client_that_is_alone_never_waits() {
    let mut open = Open::default();
    let alone = Party { client: 1, asker: 1, is_alone: true };
    open.enter_for(alone);
    assert_eq!(client(&open.whose(None)), Some(1));
    assert!(!open.must_wait(alone));
    assert!(!open.takes_turns, "there is nobody to take turns with");
}

#[test]
fn requests_get_their_turn_in_order_and_client_by_client() {
    let mut open = Open::default();
    open.ask_in_a_crowd();
    let running = open.request(1);
    let held: Vec<u64> = [2, 2, 3, 2].map(|client| open.request(client)).into();
    assert!(held.iter().all(|&number| open.is_held(number)));
    let late = open.request(1);
    assert!(open.is_held(late), "nobody overtakes those who wait");

    assert_eq!(open.released(), NONE, "not yet");
    open.close(running);
    assert_eq!(open.released(), held[..2], "both of the first in line");
    assert_eq!(open.released(), NONE, "the next is another client's");
    open.close(held[0]);
    assert_eq!(open.released(), NONE);
    open.close(held[1]);
    assert_eq!(open.released(), [held[2]]);
    open.close(held[2]);
    assert_eq!(open.released(), [held[3]]);
    open.close(held[3]);
    assert_eq!(open.released(), [late]);
}

#[test]
fn a_request_that_is_given_up_while_it_waits_is_never_sent() {
    let mut open = Open::default();
    open.ask_in_a_crowd();
    let running = open.request(1);
    let (given_up, next) = (open.request(2), open.request(3));
    assert!(open.give_up(given_up).is_some_and(|call| call.is_held));
    open.close(running);
    assert_eq!(open.released(), [next], "and leaves no ghost, for the server never saw it");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_given_up_may_still_make_its_server_ask() {
    let mut open = Open::default();
    let ghost = open.request(1);
    assert!(open.give_up(ghost).is_some());
    assert!(matches!(open.whose(None), Whose::Nobodys));
    open.request(2);
    assert!(matches!(open.whose(None), Whose::Unclear), "it could be about what the first one gave up");

    open.lay_ghost(ghost);
    assert!(matches!(open.whose(None), Whose::Unclear), "having heard of it is not having stopped");

    tokio::time::advance(HAUNTING).await;
    assert_eq!(client(&open.whose(None)), Some(2), "after a while it no longer is");
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_lays_the_ghost() {
    let mut open = Open::default();
    let ghost = open.request(1);
    open.give_up(ghost);
    open.request(2);
    assert!(open.answered(ghost).is_none(), "nobody waits for it");
    assert_eq!(client(&open.whose(None)), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_ghost_holds_up_others_but_not_its_own_client() {
    let mut open = Open::default();
    open.ask_in_a_crowd();
    let ghost = open.request(1);
    open.give_up(ghost);
    let own = open.request(1);
    assert!(!open.is_held(own));
    open.close(own);
    let others = open.request(2);
    assert!(open.is_held(others));
    assert_eq!(open.released(), NONE);
    tokio::time::advance(HAUNTING).await;
    assert_eq!(open.released(), [others], "time alone brings its turn");
}

#[tokio::test(start_paused = true)]
async fn a_ghost_that_was_heard_of_holds_up_nobody() {
    let mut open = Open::default();
    open.ask_in_a_crowd();
    let ghost = open.request(1);
    open.give_up(ghost);
    let others = open.request(2);
    open.lay_ghost(ghost);
    assert_eq!(open.released(), [others]);
}

#[tokio::test(start_paused = true)]
async fn with_too_many_ghosts_nobody_can_say_whose_a_question_is() {
    let mut open = Open::default();
    for _ in 0..=MOST_GHOSTS {
        let ghost = open.request(1);
        open.give_up(ghost);
    }
    open.request(1);
    assert!(matches!(open.whose(None), Whose::Unclear));
}

#[test]
fn requests_are_found_by_client_and_id() {
    let mut open = Open::default();
    let (first, second) = (open.request(1), open.request(2));
    open.ask_ourselves();
    assert_eq!(open.find(2, b"1"), Some(second));
    assert_eq!(open.find(2, b"\"1\""), None, "a text is no number");
    assert_eq!(open.find(3, b"1"), None);
    assert_eq!(open.of_client(1), [first]);
}

#[tokio::test(start_paused = true)]
async fn only_what_was_sent_too_long_ago_is_late() {
    let mut open = Open::default();
    let early = open.request(1);
    tokio::time::advance(Duration::from_secs(2)).await;
    let moment = Instant::now();
    tokio::time::advance(Duration::from_secs(2)).await;
    open.request(1);
    assert_eq!(open.older_than(moment), [early]);
}

#[test]
fn what_was_not_sent_outlives_the_loss_of_what_was() {
    let mut open = Open::default();
    open.ask_in_a_crowd();
    let ghost = open.request(1);
    open.give_up(ghost);
    open.request(1);
    let held = open.request(2);
    assert!(open.is_held(held));
    assert_eq!(open.take_sent().len(), 1);
    assert_eq!(open.released(), [held]);
    assert_eq!(client(&open.whose(None)), Some(2), "the loss left no ghosts");
}

#[test]
fn at_the_end_everything_that_waits_is_taken_out() {
    let mut open = Open::default();
    open.ask_in_a_crowd();
    open.request(1);
    let held = open.request(2);
    assert!(open.is_held(held));
    assert_eq!(open.take_all().len(), 2);
    assert_eq!(open.released(), NONE, "nothing is sent after the end");
    assert!(!open.is_open(held));
}
