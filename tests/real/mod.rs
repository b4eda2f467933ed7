//! Real servers from npm and PyPI, driven through us by real clients.
