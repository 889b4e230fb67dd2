//! A server as a node of its cluster: what joins it and the registry, which know nothing of each
//! other.

#[cfg(feature = "cluster")]
mod joined {
    use std::fs;
    use std::sync::Arc;
    use std::time::Duration;

    use anyhow::Context;
    use onrush_cluster::{Forgets, Ignored, Member, Registry, RegistryConfig};
    use onrush_server::cluster::{ClusterMember, ForgetRequest, IgnoredEntry};
    use onrush_server::server::Server;
    use onrush_sys::thread::keep_off;
    use onrush_wire::route::{ChannelEntry, Entry, LeaseAnswer, LeaseNews, LeaseRequest};
    use tokio::runtime::Builder;
    use tokio::sync::{Notify, mpsc};

    use crate::cluster_options::Discovery;

    /// A server's part, as the registry knows it.
    struct Part(Arc<ClusterMember>);

    impl Member for Part {
        fn entry(&self) -> Entry {
            self.0.entry()
        }

        fn told(&self, others: Vec<Arc<Entry>>, ignored: Vec<Ignored>) {
            self.0.told(others, ignored_entries(ignored));
        }

        fn reached(&self, reached: Result<(), String>) {
            self.0.reached(reached);
        }

        fn lease_requests(&self) -> Arc<Notify> {
            self.0.lease_requests()
        }

        fn lease_registry(&self, registry: u64, lasts: Duration) {
            self.0.lease_registry(registry, lasts);
        }

        fn next_lease_request(&self) -> Option<LeaseRequest> {
            self.0.next_lease_request()
        }

        fn lease_answer(&self, request: &LeaseRequest, answer: LeaseAnswer) {
            self.0.lease_answer(request, answer);
        }

        fn lease_news(&self, news: LeaseNews) {
            self.0.lease_news(news);
        }

        fn leases(&self, leases: Vec<Arc<ChannelEntry>>, ignored: Vec<Ignored>) {
            self.0.leases(leases, ignored_entries(ignored));
        }

        fn leaves(&self) {
            self.0.leave_channels();
        }
    }

    fn ignored_entries(ignored: Vec<Ignored>) -> Vec<IgnoredEntry> {
        let ignored = ignored.into_iter().map(|it| IgnoredEntry {
            key: it.key,
            reason: it.reason,
        });
        ignored.collect()
    }

    /// What is to be read before rights are given up: the registry, if there is to be one.
    pub(crate) fn prepare(
        member: Option<&onrush_server::config::ClusterConfig>,
        discovery: Discovery,
    ) -> anyhow::Result<Option<RegistryConfig>> {
        let Some(member) = member else {
            return Ok(None);
        };
        let read = |file: &std::path::PathBuf| {
            let text = fs::read_to_string(file);
            text.with_context(|| format!("cannot read the credentials in {}", file.display()))
        };
        let credentials = discovery.credentials.as_ref().map(read).transpose()?;
        Ok(Some(RegistryConfig {
            cluster: member.name.clone(),
            node: member.node.clone(),
            servers: discovery.servers,
            credentials: credentials.map(Into::into),
            time_to_live: discovery.time_to_live,
            replicas: discovery.replicas,
        }))
    }

    /// Registers a server that runs, as long as what this returns is kept.
    pub(crate) fn join(
        server: &Server,
        config: Option<RegistryConfig>,
    ) -> anyhow::Result<Option<Registry>> {
        let (Some(config), Some(member)) = (config, server.cluster_member()) else {
            return Ok(None);
        };
        let cores = server.cores().to_vec();
        let requests = member.forget_requests();
        let part = Arc::new(Part(member));
        let registry = Registry::start(config, part, move || {
            keep_off(&cores);
        });
        let registry = registry.context("cannot start the thread of the cluster")?;
        if let Some(requests) = requests {
            forget(requests, registry.forgets()).context("cannot start the thread of the API")?;
        }
        Ok(Some(registry))
    }

    /// Has the registry forget what the API is asked to.
    fn forget(
        mut requests: mpsc::Receiver<ForgetRequest>,
        forgets: Forgets,
    ) -> std::io::Result<()> {
        let runtime = Builder::new_current_thread().build()?;
        let run = move || {
            runtime.block_on(async {
                while let Some(ForgetRequest { key, answer }) = requests.recv().await {
                    // Whoever asked may be gone.
                    drop(answer.send(forgets.forget(&key).await));
                }
            });
        };
        let thread = std::thread::Builder::new().name("onrush-forget".to_owned());
        thread.spawn(run).map(drop)
    }
}

#[cfg(not(feature = "cluster"))]
mod joined {
    use onrush_server::config::ClusterConfig;
    use onrush_server::server::Server;

    use crate::cluster_options::Discovery;

    /// What there is none of.
    #[derive(Debug)]
    pub(crate) struct Registry;

    /// There is none: options that name a cluster are refused.
    #[allow(clippy::unnecessary_wraps, reason = "with the feature it may fail")]
    pub(crate) fn prepare(
        _: Option<&ClusterConfig>,
        _: Discovery,
    ) -> anyhow::Result<Option<Registry>> {
        Ok(None)
    }

    /// Nothing is joined.
    #[allow(clippy::unnecessary_wraps, reason = "with the feature it may fail")]
    pub(crate) fn join(_: &Server, _: Option<Registry>) -> anyhow::Result<Option<Registry>> {
        Ok(None)
    }
}

pub(crate) use joined::{join, prepare};
