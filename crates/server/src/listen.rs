//! Connections: accepted until the process is told to stop, finished or ended after that.

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, sync::Semaphore, time};

use crate::{Error, Options, patient::Patient};

/// Connections at once; others wait to be accepted.
const CONNECTIONS: usize = 512;
/// Until a request's headers are there.
const HEADERS: Duration = Duration::from_secs(10);
/// Bytes of a request line with its headers.
const HEADER_BYTES: usize = 64 << 10;

/// Accepts connections until a signal, then finishes those that are open.
pub(crate) async fn listen(
    router: Router,
    options: &Options,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), Error> {
    let address = SocketAddr::new(options.host, options.port);
    let taken = |reason| Error::Address { address, reason };
    let listener = TcpListener::bind(address).await.map_err(taken)?;
    let mut told = pin!(told_to_stop().map_err(Error::Start)?);
    ready(listener.local_addr().map_err(taken)?);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let place = places.clone().acquire_owned();
        let accepted = async { (place.await, listener.accept().await) };
        let Some((place, accepted)) = before(&mut told, accepted).await else { break };
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors, or the client has left: neither ends a server.
            time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS)
            .max_buf_size(HEADER_BYTES)
            .serve_connection(Patient::new(TokioIo::new(stream)), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A client that breaks off is no news.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    let _ = time::timeout(options.grace, graceful.shutdown()).await;
    Ok(())
}

/// What a future gives, or nothing if the other one is done first.
pub(crate) async fn before<F: Future>(
    other: &mut (impl Future<Output = ()> + Unpin),
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if pin!(&mut *other).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Done when the process is told to stop.
#[cfg(unix)]
fn told_to_stop() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    Ok(poll_fn(move |context| {
        match signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }))
}

/// Done when the process is told to stop.
#[cfg(not(unix))]
fn told_to_stop() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
