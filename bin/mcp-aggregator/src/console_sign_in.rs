//! Connects the console to the identity providers at which people sign in.

use std::sync::Arc;

use catalog::Principal;
use console::{IdentityProviders, Person, SignInBegun, SigningIn};
use identity::{SignInError, SignIns};

/// The identity providers, for the console.
pub(crate) struct ConsoleSignIn(pub(crate) Arc<SignIns>);

/// A person that signed in, for the console.
struct SignedIn(Arc<identity::Person>);

impl Person for SignedIn {
    fn principal(&self) -> Option<Arc<Principal>> {
        self.0.principal()
    }
}

impl IdentityProviders for ConsoleSignIn {
    fn issuers(&self) -> Vec<String> {
        self.0.issuers().into_iter().map(str::to_owned).collect()
    }

    fn begin(&self, issuer: String, next: String) -> SigningIn<'_, SignInBegun> {
        Box::pin(async move {
            let begun = self.0.begin(&issuer, &next).await.map_err(|error| told(&error))?;
            Ok(SignInBegun { url: begun.url, state: begun.state })
        })
    }

    fn finish(&self, query: String) -> SigningIn<'_, (Arc<dyn Person>, String)> {
        Box::pin(async move {
            let (person, next) = self.0.finish(&query).await.map_err(|error| told(&error))?;
            Ok((Arc::new(SignedIn(person)) as Arc<dyn Person>, next))
        })
    }
}

fn told(error: &SignInError) -> String {
    tracing::warn!(%error, "a sign-in to the console failed");
    error.to_string()
}
