//! `onrush-s3-server FOLDER KEY SECRET [ADDRESS]`: a folder's folders as buckets, by `s3s-fs`.
//!
//! Listens at a free port of loopback, or there, prints its address, and serves until it is killed.
//! One thread, nothing encrypted, one user: for tests.

use std::env;
use std::error::Error;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (folder, key, secret, address) = match arguments.as_slice() {
        [folder, key, secret] => (folder, key, secret, "127.0.0.1:0"),
        [folder, key, secret, address] => (folder, key, secret, address.as_str()),
        _ => return Err("usage: onrush-s3-server FOLDER KEY SECRET [ADDRESS]".into()),
    };
    let files = s3s_fs::FileSystem::new(folder).map_err(|error| format!("{error:?}"))?;
    let mut service = S3ServiceBuilder::new(files);
    service.set_auth(SimpleAuth::from_single(key, secret.as_str()));
    let service = service.build();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        println!("listening at {}", listener.local_addr()?);
        loop {
            let (socket, _) = listener.accept().await?;
            let service = service.clone();
            tokio::spawn(async move {
                let builder = Builder::new(TokioExecutor::new());
                // A connection that ends is no fault.
                drop(
                    builder
                        .serve_connection(TokioIo::new(socket), service)
                        .await,
                );
            });
        }
    })
}
