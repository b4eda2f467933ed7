//! What exists: the configured servers, what they offer, and what it is called.
//!
//! Everything here is pure. No file, clock, environment or process is touched: bytes and a way to look
//! up variables come in, checked values or a complete list of problems go out.
//!
//! # Layout
//!
//! - [`config`]: the bytes of a config file become a [`Config`], or a [`ConfigError`] that names every problem
//! - `expand`: `$VAR`, `${VAR}` and `${VAR:-default}` in the values of a config
//! - [`server`]: [`ServerName`] and [`ServerSpec`], one configured server
//! - [`container`]: what it takes to run a server in a container
//! - [`item`]: tools, prompts, resources and templates, exactly as their server defined them
//! - [`oauth`]: how a user wants to sign in to a remote server
//! - [`offer`]: all that one server offers, and what it says of itself
//! - [`login_command`]: the command that signs in to a server
//! - [`LoopbackRedirect`]: a redirect address on the machine of the browser
//! - [`principal`]: who makes a request, and what they may do
//! - [`profile`]: which part of everything some clients see
//! - [`mask`]: which parts of a connection config are secrets, and what it looks like without them
//! - [`secrets`]: the secrets of a server, and texts in which they are masked
//! - `rules`: what the protocol requires of a definition
//! - `repair`: compares definitions with these rules, and edits those that differ
//! - `schema`: whether a schema can be used
//! - [`sharing`]: which clients share one process or session of a server
//! - [`snapshot`]: everything that exists at one moment, merged; every name, every list, whose a URI is
//! - [`names`]: what a tool or prompt is called towards clients: canonical name and safe alias
//! - [`uri_template`]: whether a URI could have come from a template

pub mod config;
pub mod container;
mod expand;
#[doc(hidden)]
pub mod fuzzing;
pub mod item;
pub mod jsonc;
pub mod limits;
mod login_command;
mod loopback;
pub mod mask;
pub mod names;
pub mod oauth;
pub mod offer;
pub mod principal;
pub mod profile;
mod repair;
mod rules;
mod schema;
pub mod secrets;
pub mod server;
pub mod sharing;
pub mod snapshot;
pub mod uri_template;

pub use config::{Accepted, Config, ConfigError, SERVER_KEYS, Variable};
pub use container::{Contact, Container, Port, Pull};
pub use item::{Item, Kind};
pub use login_command::{login_command, sign_in_sentence};
pub use loopback::LoopbackRedirect;
pub use names::{NamePolicy, NameStyle, Separator};
pub use oauth::{GrantType, OAuthSettings, ResourceParameter, TokenEndpointAuthMethod};
pub use offer::{Hints, Offer};
pub use principal::{Principal, Role};
pub use profile::{Profile, ProfileSpec};
pub use secrets::Secrets;
pub use server::{Dialect, Filled, Program, Remote, ServerName, ServerSpec, Transport};
pub use sharing::{Share, Sharing};
pub use snapshot::{
    Collision, Missing, Route, SIGN_IN_REQUIRED, Scope, ServerEntry, ServerState, Snapshot, Unavailable, UriBudget,
};
pub use uri_template::UriTemplate;
