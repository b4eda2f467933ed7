//! The owner of a server request, turns, and remembered cancelled requests.

use std::pin::Pin;

use protocol::Span;

use super::*;
use crate::connection::Connection;
use crate::failure::CallError;
use crate::response_handler::{Notification, ServerRequest, ServerResponse};

const NONE: [u64; 0] = [];

/// A requester with nothing but an identity.
struct Somebody(Requester);

impl ResponseHandler for Somebody {
    fn requester(&self) -> Requester {
        self.0
    }
    fn on_response(&self, _: &[u8], _: ServerResponse<'_>) {}
    fn on_failure(&self, _: &[u8], _: &CallError) {}
    fn on_cancelled(&self, _: &[u8]) {}
    fn on_notification(&self, _: Notification<'_>) {}
    fn on_server_request(&self, _: ServerRequest) {}
    fn on_server_request_cancelled(&self, _: &Connection, _: &[u8], _: &Bytes, _: Span) {}
    fn flush(&self) {}
    fn catch_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        None
    }
}

fn among_others(client: u64) -> Requester {
    Requester { client, respondent: client, is_alone: false }
}

impl PendingRequests {
    fn enter_for(&mut self, requester: Requester) -> u64 {
        let call = Call {
            handler: Arc::new(Somebody(requester)),
            id: Box::from(&b"1"[..]),
            progress: None,
            requester,
            since: Some(Instant::now()),
            is_held: false,
        };
        self.enter(Pending::Call(call))
    }

    /// Adds a request that is sent at once, or held if it must wait.
    fn request(&mut self, client: u64) -> u64 {
        let requester = among_others(client);
        let queue_needed_for = self.queue_needed_for(requester);
        let number = self.enter_for(requester);
        if queue_needed_for {
            self.hold(number, Bytes::from(number.to_string()));
        }
        number
    }

    fn ask_ourselves(&mut self) -> u64 {
        self.enter(Pending::OwnRequest(oneshot::channel().0))
    }

    fn is_held(&self, number: u64) -> bool {
        self.get(number).is_some_and(|call| call.is_held)
    }

    fn released(&mut self) -> Vec<u64> {
        self.release().iter().map(|held| held.number).collect()
    }

    /// Makes the server exclusive: it serves one client at a time.
    fn ask_in_a_crowd(&mut self) {
        let (first, second) = (self.request(91), self.request(92));
        assert!(matches!(self.owner(None), RequestOwner::Ambiguous));
        self.close(first);
        self.close(second);
    }
}

/// The client that owns the server request.
fn client(owner: &RequestOwner) -> Option<u64> {
    match owner {
        RequestOwner::Handler(handler) => Some(handler.requester().client),
        RequestOwner::Nobody | RequestOwner::Ambiguous => None,
    }
}

#[test]
fn a_server_request_without_pending_requests_has_no_owner() {
    let mut open = PendingRequests::default();
    assert!(matches!(open.owner(None), RequestOwner::Nobody));
    open.ask_ourselves();
    assert!(matches!(open.owner(None), RequestOwner::Nobody), "a question of our own is nobody's to be asked about");
}

#[test]
fn a_server_request_is_for_the_only_client_with_pending_requests() {
    let mut open = PendingRequests::default();
    open.ask_ourselves();
    open.request(1);
    open.request(1);
    assert_eq!(client(&open.owner(None)), Some(1));
}

#[test]
fn a_server_request_that_could_be_for_several_is_for_none_of_them() {
    let mut open = PendingRequests::default();
    open.request(1);
    open.request(2);
    assert!(matches!(open.owner(None), RequestOwner::Ambiguous));
}

#[test]
fn requests_of_one_person_over_several_connections_are_one_persons() {
    let mut open = PendingRequests::default();
    for connection in [1, 2] {
        open.enter_for(Requester { client: connection, respondent: 7, is_alone: false });
    }
    assert_eq!(client(&open.owner(None)), Some(2), "the latest is the least likely to be closing");
}

#[test]
fn a_server_request_on_the_stream_of_a_request_is_about_that_request() {
    let mut open = PendingRequests::default();
    let (first, second) = (open.request(1), open.request(2));
    assert_eq!(client(&open.owner(Some(first))), Some(1));
    assert_eq!(client(&open.owner(Some(second))), Some(2));
    assert_eq!(open.request(3), second + 1);
    assert!(!open.is_held(second + 1), "one that says what it asks about makes nobody wait");
    open.close(first);
    assert!(matches!(open.owner(Some(first)), RequestOwner::Nobody), "what is over asks nothing of others");
    let own = open.ask_ourselves();
    assert!(matches!(open.owner(Some(own)), RequestOwner::Nobody));
}

#[test]
fn servers_that_never_ask_serve_everybody_at_once() {
    let mut open = PendingRequests::default();
    let requests = [open.request(1), open.request(2), open.request(3)];
    assert!(requests.iter().all(|&number| !open.is_held(number)));
}

#[test]
fn a_server_that_sends_a_request_serves_one_client_at_a_time_from_then_on() {
    let mut open = PendingRequests::default();
    open.request(1);
    assert_eq!(client(&open.owner(None)), Some(1));
    let (own, others) = (open.request(1), open.request(2));
    assert!(!open.is_held(own), "its own client goes on");
    assert!(open.is_held(others));
    assert_eq!(client(&open.owner(None)), Some(1), "what was not sent cannot be asked about");
}

#[test]
fn a_server_request_outside_any_request_delays_no_client() {
    let mut open = PendingRequests::default();
    assert!(matches!(open.owner(None), RequestOwner::Nobody));
    open.request(1);
    let others = open.request(2);
    assert!(!open.is_held(others));
}

#[test]
fn a_client_that_is_alone_never_waits() {
    let mut open = PendingRequests::default();
    let alone = Requester { client: 1, respondent: 1, is_alone: true };
    open.enter_for(alone);
    assert_eq!(client(&open.owner(None)), Some(1));
    assert!(!open.queue_needed_for(alone));
    assert!(!open.is_exclusive, "there is nobody to take turns with");
}

#[test]
fn requests_get_their_turn_in_order_and_client_by_client() {
    let mut open = PendingRequests::default();
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
    let mut open = PendingRequests::default();
    open.ask_in_a_crowd();
    let running = open.request(1);
    let (given_up, next) = (open.request(2), open.request(3));
    assert!(open.give_up(given_up).is_some_and(|call| call.is_held));
    open.close(running);
    assert_eq!(open.released(), [next], "and leaves no abandoned request, because the server never saw it");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_given_up_may_still_make_its_server_ask() {
    let mut open = PendingRequests::default();
    let request = open.request(1);
    assert!(open.give_up(request).is_some());
    assert!(matches!(open.owner(None), RequestOwner::Nobody));
    open.request(2);
    assert!(matches!(open.owner(None), RequestOwner::Ambiguous), "it could be about what the first one gave up");

    tokio::time::advance(ABANDONED_REQUEST_LIFETIME).await;
    assert_eq!(client(&open.owner(None)), Some(2), "after a while it no longer is");
}

#[tokio::test(start_paused = true)]
async fn a_late_response_forgets_the_abandoned_request() {
    let mut open = PendingRequests::default();
    let request = open.request(1);
    open.give_up(request);
    open.request(2);
    assert!(open.answered(request).is_none(), "nobody waits for it");
    assert_eq!(client(&open.owner(None)), Some(2));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_request_blocks_others_but_not_its_own_client() {
    let mut open = PendingRequests::default();
    open.ask_in_a_crowd();
    let request = open.request(1);
    open.give_up(request);
    let own = open.request(1);
    assert!(!open.is_held(own));
    open.close(own);
    let others = open.request(2);
    assert!(open.is_held(others));
    assert_eq!(open.released(), NONE);
    tokio::time::advance(ABANDONED_REQUEST_LIFETIME).await;
    assert_eq!(open.released(), [others], "time alone brings its turn");
}

#[tokio::test(start_paused = true)]
async fn an_acknowledged_abandoned_request_blocks_nobody() {
    let mut open = PendingRequests::default();
    open.ask_in_a_crowd();
    let request = open.request(1);
    open.give_up(request);
    let others = open.request(2);
    open.forget_abandoned(request);
    assert_eq!(open.released(), [others]);
}

#[tokio::test(start_paused = true)]
async fn with_too_many_abandoned_requests_the_owner_of_a_server_request_is_ambiguous() {
    let mut open = PendingRequests::default();
    for _ in 0..=MAX_ABANDONED_REQUESTS {
        let request = open.request(1);
        open.give_up(request);
    }
    open.request(1);
    assert!(matches!(open.owner(None), RequestOwner::Ambiguous));
}

#[test]
fn requests_are_found_by_client_and_id() {
    let mut open = PendingRequests::default();
    let (first, second) = (open.request(1), open.request(2));
    open.ask_ourselves();
    assert_eq!(open.find(2, b"1"), Some(second));
    assert_eq!(open.find(2, b"\"1\""), None, "a text is no number");
    assert_eq!(open.find(3, b"1"), None);
    assert_eq!(open.of_client(1), [first]);
}

#[tokio::test(start_paused = true)]
async fn only_what_was_sent_too_long_ago_is_late() {
    let mut open = PendingRequests::default();
    let early = open.request(1);
    tokio::time::advance(Duration::from_secs(2)).await;
    let moment = Instant::now();
    tokio::time::advance(Duration::from_secs(2)).await;
    open.request(1);
    assert_eq!(open.older_than(moment), [early]);
}

#[test]
fn what_was_not_sent_outlives_the_loss_of_what_was() {
    let mut open = PendingRequests::default();
    open.ask_in_a_crowd();
    let request = open.request(1);
    open.give_up(request);
    open.request(1);
    let held = open.request(2);
    assert!(open.is_held(held));
    assert_eq!(open.take_sent().len(), 1);
    assert_eq!(open.released(), [held]);
    assert_eq!(client(&open.owner(None)), Some(2), "the loss left no abandoned requests");
}

#[test]
fn at_the_end_everything_that_waits_is_taken_out() {
    let mut open = PendingRequests::default();
    open.ask_in_a_crowd();
    open.request(1);
    let held = open.request(2);
    assert!(open.is_held(held));
    assert_eq!(open.take_all().len(), 2);
    assert_eq!(open.released(), NONE, "nothing is sent after the end");
    assert!(!open.is_open(held));
}

#[test]
fn an_instance_that_serves_one_person_is_never_exclusive() {
    let mut requests = PendingRequests::of(&Audience::Identity("ann".into()));
    let (first, second) = (requests.request(1), requests.request(2));
    let silent = requests.enter_for(Requester { respondent: Requester::NO_RESPONDENT, ..among_others(3) });
    let RequestOwner::Handler(owner) = requests.owner(None) else { panic!("any session of the person can answer") };
    assert_eq!(owner.requester().client, 2, "the latest that accepts requests");
    requests.give_up(second);
    let RequestOwner::Handler(owner) = requests.owner(None) else { panic!("the first one is open") };
    assert_eq!(owner.requester().client, 1);
    assert!(!requests.is_held(requests.last));
    let third = requests.request(4);
    assert!(!requests.is_held(third) && requests.deserted() == NONE);
    for number in [first, silent, third] {
        requests.close(number);
    }
    assert!(matches!(requests.owner(None), RequestOwner::Nobody));
}
