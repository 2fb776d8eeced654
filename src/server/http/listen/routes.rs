//! The routes in force. Requests that a connection has begun keep the routes of their beginning.

use std::{
    mem,
    sync::{Arc, Weak},
};

use axum::Router;
use parking_lot::RwLock;

/// Routes that may be replaced while the server runs. Clones share them.
#[derive(Clone)]
pub(in crate::server) struct CurrentRoutes(Arc<RwLock<Router>>);

/// The same routes, without keeping them in memory. The routes' own handlers may hold it.
pub(in crate::server) struct WeakRoutes(Weak<RwLock<Router>>);

impl CurrentRoutes {
    pub(in crate::server) fn new(router: Router) -> Self {
        Self(Arc::new(RwLock::new(router)))
    }

    /// Returns the routes for the next request.
    pub(in crate::server) fn get(&self) -> Router {
        self.0.read().clone()
    }

    /// Puts other routes in their place, from the next request on.
    pub(in crate::server) fn replace(&self, router: Router) {
        // The drop of the old routes must not happen under the lock: it may take long.
        let _old = mem::replace(&mut *self.0.write(), router);
    }

    pub(in crate::server) fn downgrade(&self) -> WeakRoutes {
        WeakRoutes(Arc::downgrade(&self.0))
    }
}

impl WeakRoutes {
    /// Returns the routes, unless their server has ended.
    pub(in crate::server) fn upgrade(&self) -> Option<CurrentRoutes> {
        self.0.upgrade().map(CurrentRoutes)
    }
}
