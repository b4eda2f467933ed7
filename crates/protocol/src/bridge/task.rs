//! The request to run a call as a task. Tasks of the two lifecycles differ, so towards the other lifecycle it is
//! removed.

use bytes::Bytes;

use crate::bridge::change::Change;
use crate::envelope::Params;
use crate::scan::member;

const TASK_MEMBER: &str = "task";

/// The parameters of a call without the request for a task; `None` if there is none.
pub fn without_task_member(line: &Bytes, params: &Params) -> Option<Bytes> {
    let params = params.span?;
    member(line, params, TASK_MEMBER)?;
    let mut change = Change::new(line);
    change.remove_member(params, TASK_MEMBER);
    Some(change.apply())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Envelope;

    #[test]
    fn the_task_member_is_removed_and_nothing_else() {
        let line = Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"t","task":{"ttl":1},"arguments":{"task": 1.0}}}"#,
        );
        let params = Envelope::scan(&line).unwrap().params;
        let plain = without_task_member(&line, &params).unwrap();
        let expected = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"t","arguments":{"task": 1.0}}}"#;
        assert_eq!(plain, expected);
        assert_eq!(without_task_member(&plain, &Envelope::scan(&plain).unwrap().params), None);
    }
}
