//! The sign-in of a server on its requests: the token, and what follows when the server refuses it.

use std::sync::Arc;

use catalog::Secrets;
use hyper::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use oauth::{TokenError, TokenSource};

use crate::body::Body;
use crate::error::RequestError;

/// The tokens for the requests to one server.
#[derive(Debug, Clone)]
pub(crate) struct Authorization(Arc<TokenSource>);

/// The token of one request.
#[derive(Clone)]
pub(crate) struct RequestToken {
    /// The header that it is sent with, if there is a token.
    pub(crate) header: Option<HeaderValue>,
    /// It is from after the server refused the request with another one.
    is_renewed: bool,
}

impl Authorization {
    pub(crate) fn new(source: Arc<TokenSource>) -> Self {
        Self(source)
    }

    /// The token for a request. Neither waits nor does any I/O.
    pub(crate) fn token(&self) -> RequestToken {
        RequestToken { header: self.0.header(), is_renewed: false }
    }

    /// The token for the same request once more, after a server refused it with 401 or 403: neither means that it was
    /// carried out.
    pub(crate) async fn after_refusal(
        &self,
        used: &RequestToken,
        response: Response<Body>,
    ) -> Result<RequestToken, RequestError> {
        let (status, challenges) = (response.status(), challenges(response.headers()));
        response.into_body().discard().await;
        let refused = || RequestError::unauthorized(status, &used.hide(&challenges.join(", ")));
        if status == StatusCode::FORBIDDEN {
            // Whoever repeats it has a newer token each time, so this comes to an end.
            return match self.0.after_insufficient_scope(used.header.as_ref(), &challenges).await {
                Some(Ok(header)) => Ok(RequestToken { header: Some(header), is_renewed: true }),
                Some(Err(error)) => Err(self.without_token(error).unwrap_or_else(refused)),
                None => Err(refused()),
            };
        }
        let renewed = match used.header.as_ref().filter(|_| used.is_renewed) {
            Some(header) => Err(self.0.after_refusal(header)),
            None => self.0.after_unauthorized(used.header.as_ref(), &challenges).await,
        };
        match renewed {
            Ok(header) => Ok(RequestToken { header: Some(header), is_renewed: true }),
            Err(error) => Err(self.without_token(error).unwrap_or_else(refused)),
        }
    }

    /// Why there is no token for a request; `None` if the server asks for credentials of another kind.
    fn without_token(&self, error: TokenError) -> Option<RequestError> {
        match error {
            TokenError::SignInRequired { why } => {
                let command = self.0.login_command();
                Some(RequestError::SignInRequired { why: format!("{why}; run `{command}`"), command })
            }
            TokenError::Unavailable(error) => Some(RequestError::TokenUnavailable(error.to_string())),
            TokenError::Failed(error) => Some(RequestError::TokenFailed(error.to_string())),
            TokenError::NotOffered => None,
        }
    }
}

impl RequestToken {
    /// A text of the server without the token, which it may have repeated.
    pub(crate) fn hide(&self, text: &str) -> String {
        let header = self.header.as_ref().and_then(|header| header.to_str().ok());
        Secrets::default().with(header).hide(text).into_owned()
    }
}

impl std::fmt::Debug for RequestToken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RequestToken").field("is_renewed", &self.is_renewed).finish_non_exhaustive()
    }
}

/// The `WWW-Authenticate` headers of a response.
pub(crate) fn challenges(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(WWW_AUTHENTICATE).iter();
    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
}

#[cfg(test)]
mod tests;
