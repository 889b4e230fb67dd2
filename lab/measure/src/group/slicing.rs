//! Where a send's time goes: the paper's figure 5, by its own method, software slicing.
//!
//! One datagram after the other is sent and dropped at a point of its way; what a point costs more
//! than the one before is what lies between them. The points are those at which a stock kernel lets
//! a program drop ([`onrush_testkit::slice`]); the copy is no such point, it is part of what lies
//! behind the socket layer, and shows in how that grows with the datagram.

use std::net::UdpSocket;
use std::time::Instant;

use onrush_testkit::sink::Sink;
use onrush_testkit::slice::{self, Slice};
use onrush_testkit::testbed::{self, RCV_DEVICE, RCV_IPV4, SND_DEVICE, SND_IPV4, Testbed};
use serde::{Deserialize, Serialize};

use super::{Run, Settings};
use crate::error::ExperimentError;
use crate::setup::system;
use crate::stats::ratio;

/// How far a datagram comes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// To the socket layer, before route and copy.
    Socket,
    /// Through UDP and IP.
    AfterIp,
    /// To the device.
    BeforeDevice,
    /// To the far end of the veth pair.
    FarEnd,
}

impl Point {
    /// All, from the sender on.
    pub const ALL: [Self; 4] = [
        Self::Socket,
        Self::AfterIp,
        Self::BeforeDevice,
        Self::FarEnd,
    ];

    /// What lies between the point before and this one.
    #[must_use]
    pub fn layer(self) -> &'static str {
        match self {
            Self::Socket => "system call and socket",
            Self::AfterIp => "route, copy, UDP, IP",
            Self::BeforeDevice => "neighbour and queue",
            Self::FarEnd => "device and far end",
        }
    }
}

pub(super) fn run_all(
    settings: &Settings,
    runs: &mut Vec<Run>,
    mut progress: impl FnMut(f64),
) -> Result<(), ExperimentError> {
    if settings.sliced_bytes.is_empty() {
        return Ok(());
    }
    let testbed = Testbed::new(testbed::Options::default())?;
    let sink = Sink::attach_seldom_looking(&testbed.rcv, RCV_DEVICE, PORT..=PORT, LOOK_EVERY)?;
    let socket = testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0)));
    let socket = socket.map_err(system("open a socket"))?;
    for repeat in 0..settings.repeats {
        for &bytes in &settings.sliced_bytes {
            for point in Point::ALL {
                let send_ns = run(&testbed, &sink, &socket, point, bytes)?;
                runs.push(Run::Slice {
                    point,
                    bytes,
                    repeat,
                    send_ns,
                });
            }
        }
        progress(ratio(u64::from(repeat) + 1, settings.repeats.into()));
    }
    Ok(())
}

fn run(
    testbed: &Testbed,
    sink: &Sink,
    socket: &UdpSocket,
    point: Point,
    bytes: usize,
) -> Result<f64, ExperimentError> {
    let drop_at = match point {
        Point::Socket => Some(slice::Point::Socket),
        Point::AfterIp => Some(slice::Point::AfterIp),
        Point::BeforeDevice => Some(slice::Point::BeforeDevice),
        Point::FarEnd => None,
    };
    let slice = drop_at.map(|point| Slice::attach(point, socket, &testbed.snd, SND_DEVICE));
    let slice = slice.transpose()?;
    let before = sink.totals()?.packets;
    let (datagram, to) = (vec![0x47; bytes], (RCV_IPV4, PORT));
    let send = || {
        // Points in the socket's own call say EPERM.
        drop(socket.send_to(&datagram, to));
    };
    (0..SENDS / 10).for_each(|_| send());
    let begin = Instant::now();
    (0..SENDS).for_each(|_| send());
    let elapsed = begin.elapsed();
    let expected = u64::from(SENDS + SENDS / 10);
    let dropped = match &slice {
        Some(slice) => slice.dropped()?,
        None => sink.totals()?.packets - before,
    };
    if dropped != expected {
        return Err(ExperimentError::subject(
            "datagrams to be sliced were not dropped where they were to be",
        ));
    }
    Ok(elapsed.as_secs_f64() * 1e9 / f64::from(SENDS))
}

const PORT: u16 = 20_000;
const LOOK_EVERY: u16 = 1000;
/// Of a run.
const SENDS: u32 = 10_000;
