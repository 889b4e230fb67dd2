//! Transfers over loopback: what arrives, in whose favour, and what a file in trouble does.

use std::fs::File;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpStream as Peer;
use std::task::Poll;
use std::thread::{self, JoinHandle};

use onrush_sys::clock::thread_cpu_ns;
use onrush_sys::fs::{advise_done, device};
use onrush_testkit::disk::FailingDisk;
use onrush_wire::pace::schedule::{Fixed, Yield, jain};
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};

use super::*;

mod paced;

const LONG: Duration = Duration::from_secs(60);

/// Runs on one thread with everything a server has.
fn run<T>(act: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let all = async { timeout(LONG, act).await.expect("it takes too long") };
    LocalSet::new().block_on(&runtime, all)
}

/// A file on a disk whose every byte tells where it is.
fn film(bytes: usize) -> Arc<File> {
    let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
    file.write_all(&content(0..bytes)).unwrap();
    Arc::new(file)
}

fn content(range: Range<usize>) -> Vec<u8> {
    range
        .map(|at| u8::try_from((at % 251 + at / 65_536) % 256).unwrap())
        .collect()
}

async fn pair() -> (TcpStream, Peer) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let far = thread::spawn(move || Peer::connect(address).unwrap());
    let (near, _) = listener.accept().await.unwrap();
    let far = far.join().unwrap();
    near.writable().await.unwrap();
    (near, far)
}

/// Reads until the end.
fn reading(mut far: Peer) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A connection that is reset has what came before.
        far.read_to_end(&mut bytes).ok();
        bytes
    })
}

/// Sends a range to a peer that reads; what it answered, and what arrived.
async fn send(
    transfers: &Transfers,
    file: &Arc<File>,
    range: Range<u64>,
    policy: &Policy,
) -> (Result<Sent, TransferError>, Vec<u8>) {
    let (near, far) = pair().await;
    let reading = reading(far);
    let control = Control::default();
    let sent = transfers.cue(file, range, &near, policy, &control).await;
    drop(near);
    let received = tokio::task::spawn_blocking(|| reading.join().unwrap());
    let received = received.await.unwrap();
    assert_eq!(control.sent_bytes(), received.len() as u64);
    (sent, received)
}

#[test]
fn every_schedule_sends_the_very_bytes_of_the_range() {
    let file = film(5_000_000);
    let fixed = Fixed {
        block_bytes: 100_000,
        blocks: 3,
        pause_ns: 1_000_000,
    };
    let rate = Rate {
        bytes_a_second: 50_000_000,
        burst_bytes: 300_000,
    };
    let schedules = [
        Schedule::Fair,
        Schedule::Fixed(fixed),
        Schedule::Rate(rate),
        Schedule::Adaptive,
        Schedule::Yielding(Yield::Fixed(fixed)),
        Schedule::Yielding(Yield::Share),
    ];
    run(async {
        let transfers = Transfers::new(Settings::default());
        for schedule in schedules {
            for range in [0..0, 0..1, 7..5_000_000, 4_999_999..5_000_000_usize] {
                let policy = Policy {
                    schedule,
                    limit: None,
                };
                let asked = range.start as u64..range.end as u64;
                let (sent, received) = send(&transfers, &file, asked, &policy).await;
                let bytes = range.len() as u64;
                assert_eq!(sent.unwrap(), Sent { bytes });
                assert!(received == content(range.clone()), "{schedule:?} {range:?}");
            }
        }
        assert_eq!(transfers.active(), 0);
    });
}

/// Near each other and far, in order and not; of a file in memory, and of one that is not.
#[test]
fn gathered_pieces_arrive_in_their_order() {
    let file = film(6_000_000);
    file.sync_all().unwrap();
    let near = |from: usize, count: usize| (0..count).map(move |at| from + at * 5000);
    let near = |from, count| near(from, count).map(|at| at..at + 3000);
    let mut pieces: Vec<_> = near(10, 300).collect();
    pieces.extend([
        5_000_000..5_999_999,
        4_000_000..4_000_001,
        4_000_001..4_500_000,
    ]);
    pieces.extend(near(100, 20).map(|it| it.start..it.end + 1990));
    pieces.extend([2_000_000..2_300_000, 1_900_000..2_200_000]);
    let expected: Vec<_> = pieces.iter().cloned().flat_map(content).collect();
    let pieces: Vec<_> = pieces
        .iter()
        .map(|it| it.start as u64..it.end as u64)
        .collect();
    let fixed = Schedule::Fixed(Fixed {
        block_bytes: 7000,
        blocks: 9,
        pause_ns: 100_000,
    });
    run(async {
        let transfers = Transfers::new(Settings::default());
        for schedule in [Schedule::Fair, fixed, Schedule::Adaptive] {
            advise_done(&file, 0, 0);
            for _ in 0..2 {
                let (near, far) = pair().await;
                let reading = reading(far);
                let (policy, control) = (
                    Policy {
                        schedule,
                        limit: None,
                    },
                    Control::default(),
                );
                let sent = transfers
                    .gather(&file, &pieces, &near, &policy, &control)
                    .await;
                drop(near);
                let received = tokio::task::spawn_blocking(|| reading.join().unwrap());
                assert!(received.await.unwrap() == expected, "{schedule:?}");
                let bytes = expected.len() as u64;
                assert_eq!(sent.unwrap(), Sent { bytes });
                assert_eq!(control.sent_bytes(), bytes);
            }
        }
        let Counters {
            transfers, cold, ..
        } = transfers.counters();
        assert!(transfers == 6 && cold > 0, "{cold} reads were waited for");
    });
}

/// It takes two steps.
#[test]
fn the_last_bytes_leave_while_the_file_is_the_same() {
    let file = film(3_000_000);
    run(async {
        let transfers = Transfers::new(Settings::default());
        for is_same in [true, false] {
            let (near, far) = pair().await;
            let reading = reading(far);
            let (policy, control) = (Policy::default(), Control::default());
            let check = |_: &File| is_same;
            let of = SentFile::from(&file).while_same(&check);
            let sent = transfers.cue(of, 0..3_000_000, &near, &policy, &control);
            let sent = sent.await;
            drop(near);
            let received = tokio::task::spawn_blocking(|| reading.join().unwrap());
            let received = received.await.unwrap();
            let is_changed = matches!(sent, Err(TransferError::Changed));
            assert_eq!(is_changed, !is_same, "{sent:?}");
            assert_eq!(received.len() == 3_000_000, is_same);
            assert!(received == content(0..received.len()));
        }
    });
}

/// Also where all of it is one step.
#[test]
fn nothing_leaves_of_a_short_file_that_was_changed() {
    let file = film(1000);
    run(async {
        let transfers = Transfers::new(Settings::default());
        let (near, far) = pair().await;
        let reading = reading(far);
        let (policy, control) = (Policy::default(), Control::default());
        let check = |_: &File| false;
        let of = SentFile::from(&file).while_same(&check);
        let sent = transfers.cue(of, 0..1000, &near, &policy, &control).await;
        assert!(matches!(sent, Err(TransferError::Changed)), "{sent:?}");
        drop(near);
        let received = tokio::task::spawn_blocking(|| reading.join().unwrap());
        assert!(received.await.unwrap().is_empty());
    });
}

#[test]
fn gathered_pieces_end_where_a_cut_file_does() {
    let file = film(96_000);
    let pieces: Vec<_> = (0..40).map(|at| at * 5000..at * 5000 + 3000).collect();
    let mut expected: Vec<_> = (0..19)
        .flat_map(|at| content(at * 5000..at * 5000 + 3000))
        .collect();
    expected.extend(content(95_000..96_000));
    run(async {
        let transfers = Transfers::new(Settings::default());
        let (near, far) = pair().await;
        let reading = reading(far);
        let (policy, control) = (Policy::default(), Control::default());
        let sent = transfers.gather(&file, &pieces, &near, &policy, &control);
        let sent = sent.await;
        drop(near);
        let received = tokio::task::spawn_blocking(|| reading.join().unwrap());
        assert!(received.await.unwrap() == expected);
        assert!(sent.is_err(), "{sent:?}");
        assert_eq!(control.sent_bytes(), expected.len() as u64);
    });
}

#[test]
fn a_small_file_in_memory_leaves_in_the_first_step() {
    let file = film(100_000);
    run(async {
        let transfers = Transfers::new(Settings::default());
        let (near, far) = pair().await;
        let (policy, control) = (Policy::default(), Control::default());
        let mut cue = std::pin::pin!(transfers.cue(&file, 0..100_000, &near, &policy, &control));
        let at_once = poll_fn(|context| Poll::Ready(cue.as_mut().poll(context).is_ready())).await;
        assert!(at_once);
        let expected = Counters {
            transfers: 1,
            sent_bytes: 100_000,
            steps: 1,
            asked: 1,
            ..Counters::default()
        };
        assert_eq!(transfers.counters(), expected);
        drop(far);
    });
}

#[test]
fn a_large_file_takes_large_steps() {
    let file = film(64 << 20);
    run(async {
        let transfers = Transfers::new(Settings::default());
        let (sent, received) = send(&transfers, &file, 0..64 << 20, &Policy::default()).await;
        sent.unwrap();
        assert_eq!(received.len(), 64 << 20);
        let Counters { steps, full, .. } = transfers.counters();
        assert!(steps >= (64 << 20) / STEP_BYTES_MAX, "{steps} steps");
        // However small the socket's buffer: an empty step costs, one after each full socket is too
        // many.
        assert!(steps <= 32 + 2 * full, "{steps} steps, {full} times full");
    });
}

#[test]
fn a_step_lies_between_its_bounds() {
    let transfers = Transfers::new(Settings::default());
    let mut places: Vec<_> = (0..ROUND_BYTES / STEP_BYTES_MAX)
        .map(|_| transfers.turns.join())
        .collect();
    assert_eq!(transfers.step_bytes(), STEP_BYTES_MAX);
    places.push(transfers.turns.join());
    assert!((STEP_BYTES_MIN..STEP_BYTES_MAX).contains(&transfers.step_bytes()));
    while places.len() < 3000 {
        places.push(transfers.turns.join());
    }
    assert_eq!(transfers.step_bytes(), STEP_BYTES_MIN);
    drop(places);
    assert_eq!(transfers.step_bytes(), STEP_BYTES_MAX);
}

#[test]
fn what_a_neighbour_just_found_is_not_asked_again() {
    let file = film(9 << 20);
    run(async {
        let transfers = Transfers::new(Settings::default());
        let policy = Policy::default();
        let (sent, _) = send(&transfers, &file, 0..9 << 20, &policy).await;
        sent.unwrap();
        // Once for each stretch, however the socket cut the steps; again only if it took a quarter
        // of a second.
        let first = transfers.counters().asked;
        assert!(first >= 5, "{first}");
        let other = film(9 << 20);
        let (sent, _) = send(&transfers, &other, 0..9 << 20, &policy).await;
        sent.unwrap();
        assert!(
            transfers.counters().asked >= first + 5,
            "another file is another matter"
        );
        // Soon enough after another it asks nothing; how soon, the machine decides.
        let asks_nothing = async || {
            let before = transfers.counters().asked;
            let (sent, received) = send(&transfers, &file, 0..9 << 20, &policy).await;
            sent.unwrap();
            assert!(received == content(0..9 << 20));
            transfers.counters().asked == before
        };
        for _ in 0..50 {
            if asks_nothing().await {
                return;
            }
        }
        panic!("each transfer asks for itself");
    });
}

/// With all reads taken a cold transfer waits, whoever else may go on; with one free it goes on.
#[test]
fn no_more_reads_at_once_than_there_may_be() {
    let (cold, warm) = (film(3 << 20), film(3 << 20));
    cold.sync_all().unwrap();
    run(async {
        let transfers = Transfers::new(Settings::default());
        let reads = transfers.reads.of(device(&cold));
        assert_eq!(reads.available_permits(), READS_MAX);
        let all = u32::try_from(READS_MAX).unwrap();
        let taken = Arc::clone(&reads);
        let mut taken = taken.acquire_many_owned(all).await.unwrap();
        advise_done(&cold, 0, 0);
        let (near, far) = pair().await;
        let reading = reading(far);
        let (policy, control) = (Policy::default(), Control::default());
        let mut cue = Box::pin(transfers.cue(&cold, 0..3 << 20, &near, &policy, &control));
        let waits = poll_fn(|context| Poll::Ready(cue.as_mut().poll(context).is_pending())).await;
        assert!(waits);
        let (sent, _) = send(&transfers, &warm, 0..3 << 20, &policy).await;
        sent.unwrap();
        let waits = poll_fn(|context| Poll::Ready(cue.as_mut().poll(context).is_pending())).await;
        assert!(
            waits && control.sent_bytes() == 0,
            "there is no read for it"
        );
        drop(taken.split(1));
        cue.as_mut().await.unwrap();
        drop(cue);
        drop(near);
        assert!(reading.join().unwrap() == content(0..3 << 20));
        drop(taken);
        assert_eq!(reads.available_permits(), READS_MAX);
    });
}

/// A disk that does not answer keeps all of its reads.
#[test]
fn reads_of_one_disk_take_none_of_another() {
    let cold = film(3 << 20);
    cold.sync_all().unwrap();
    run(async {
        let transfers = Transfers::new(Settings::default());
        let all = u32::try_from(READS_MAX).unwrap();
        let other = transfers.reads.of(device(&cold) + 1);
        let taken = other.acquire_many_owned(all).await.unwrap();
        advise_done(&cold, 0, 0);
        let (sent, received) = send(&transfers, &cold, 0..3 << 20, &Policy::default()).await;
        sent.unwrap();
        assert!(received == content(0..3 << 20));
        drop(taken);
    });
}

#[test]
fn a_reader_that_does_not_read_delays_nobody_and_is_given_up() {
    let file = film(8 << 20);
    run(async {
        let transfers = Transfers::new(Settings {
            stall_time_max: Duration::from_secs(5),
            ..Settings::default()
        });
        let (near, far) = pair().await;
        let stalling = {
            let (transfers, file) = (Rc::clone(&transfers), Arc::clone(&file));
            spawn_local(async move {
                let (policy, control) = (Policy::default(), Control::default());
                // More than any socket holds.
                let sent = async {
                    loop {
                        transfers
                            .cue(&file, 0..8 << 20, &near, &policy, &control)
                            .await?;
                    }
                };
                let sent: Result<Sent, TransferError> = sent.await;
                sent
            })
        };
        let (sent, received) = send(&transfers, &file, 0..8 << 20, &Policy::default()).await;
        sent.unwrap();
        assert_eq!(received.len(), 8 << 20);
        let stalled = stalling.await.unwrap();
        assert!(
            matches!(stalled, Err(TransferError::Stalled { .. })),
            "{stalled:?}"
        );
        drop(far);
    });
}

#[test]
fn a_peer_that_leaves_is_told_from_a_file_that_fails() {
    let file = film(8 << 20);
    run(async {
        let transfers = Transfers::new(Settings::default());
        let (near, far) = pair().await;
        drop(far);
        let (policy, control) = (Policy::default(), Control::default());
        let gone = async {
            loop {
                transfers
                    .cue(&file, 0..8 << 20, &near, &policy, &control)
                    .await?;
            }
        };
        let gone: Result<Sent, TransferError> = gone.await;
        assert!(matches!(gone, Err(TransferError::Peer(_))), "{gone:?}");
        // A folder opens like a file, and cannot be read like one.
        let folder = Arc::new(File::open("/var/tmp").unwrap());
        let (failed, received) = send(&transfers, &folder, 0..10, &policy).await;
        assert!(
            matches!(failed, Err(TransferError::File { offset: 0, .. })),
            "{failed:?}"
        );
        assert!(received.is_empty());
    });
}

#[test]
fn a_cut_file_ends_its_transfer_and_a_grown_one_does_not() {
    run(async {
        let transfers = Transfers::new(Settings::default());
        // Cut before it begins, on either side of a page.
        let file = film(5 << 20);
        for length in [4 << 20, (2 << 20) + 1, 0] {
            file.set_len(length).unwrap();
            let (sent, received) = send(&transfers, &file, 0..5 << 20, &Policy::default()).await;
            assert!(
                matches!(
                    sent,
                    Err(TransferError::Truncated {
                        promised: 0x50_0000
                    })
                ),
                "{sent:?}"
            );
            assert_eq!(received.len() as u64, length);
        }
        // Cut while the kernel holds all that there was.
        let file = film(40 << 20);
        let (near, far) = pair().await;
        let (policy, control) = (Policy::default(), Control::default());
        let (growing, cutting) = (Arc::clone(&file), Arc::clone(&file));
        let cue = transfers.cue(&file, 0..40 << 20, &near, &policy, &control);
        let cut = async {
            while control.sent_bytes() < 1 << 20 {
                tokio::task::yield_now().await;
            }
            cutting.set_len(1000).unwrap();
            reading(far)
        };
        let (sent, reading) = tokio::join!(cue, cut);
        assert!(
            matches!(sent, Err(TransferError::Truncated { .. })),
            "{sent:?}"
        );
        drop(near);
        assert!(reading.join().unwrap().len() < 40 << 20);
        growing.set_len(9 << 20).unwrap();
        let (sent, received) = send(&transfers, &file, 0..1000, &policy).await;
        sent.unwrap();
        assert!(received == content(0..1000));
    });
}

#[test]
fn a_disk_that_fails_ends_its_own_transfer_and_no_other() {
    onrush_testkit::require_root!();
    onrush_testkit::require_programs!("losetup");
    let disk = FailingDisk::new(&content(0..8 << 20), 3 << 20).unwrap();
    let failing = Arc::new(disk.open().unwrap());
    let file = film(8 << 20);
    run(async {
        let transfers = Transfers::new(Settings::default());
        let (policy, all) = (Policy::default(), 0..8 << 20);
        let bad = send(&transfers, &failing, all.clone(), &policy);
        let good = send(&transfers, &file, all, &policy);
        let ((failed, part), (sent, whole)) = tokio::join!(bad, good);
        let Err(TransferError::File { offset, source }) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!(source.raw_os_error(), Some(libc::EIO));
        assert!(offset <= 3 << 20, "{offset}");
        // Nothing that was not on the disk.
        assert!(part.len() <= 3 << 20 && part == content(0..part.len()));
        sent.unwrap();
        assert!(whole == content(0..8 << 20));
    });
}

#[test]
fn a_cancel_ends_whatever_is_waited_for() {
    let file = film(8 << 20);
    run(async {
        let transfers = Transfers::new(Settings::default());
        let (near, far) = pair().await;
        let reading = reading(far);
        let (policy, control) = (Policy::default(), Control::default());
        let cue = transfers.cue(&file, 0..8 << 20, &near, &policy, &control);
        cue.await.unwrap();
        let slow = Rate {
            bytes_a_second: 10,
            burst_bytes: 10,
        };
        let never = Policy {
            limit: Some(Limit::new(slow)),
            ..Policy::default()
        };
        let cue = transfers.cue(&file, 0..8 << 20, &near, &never, &control);
        let act = async {
            while control.sent_bytes() < (8 << 20) + 10 {
                tokio::task::yield_now().await;
            }
            control.cancel();
        };
        let (sent, ()) = tokio::join!(cue, act);
        assert!(matches!(sent, Err(TransferError::Cancelled)), "{sent:?}");
        let sent = transfers.cue(&file, 0..1, &near, &policy, &control).await;
        assert!(matches!(sent, Err(TransferError::Cancelled)), "{sent:?}");
        drop(near);
        assert!(reading.join().unwrap()[..8 << 20] == content(0..8 << 20));
    });
}

#[test]
fn a_cold_file_is_read_on_another_thread() {
    let file = film(6 << 20);
    file.sync_all().unwrap();
    run(async {
        let transfers = Transfers::new(Settings::default());
        let range = 0..6 << 20;
        advise_done(&file, 0, 0);
        let (near, far) = pair().await;
        let reading = reading(far);
        let (policy, control) = (Policy::default(), Control::default());
        let mut cue = Box::pin(transfers.cue(&file, range, &near, &policy, &control));
        // It does not even try before the disk has answered.
        let at_once = poll_fn(|context| Poll::Ready(cue.as_mut().poll(context).is_ready())).await;
        assert!(!at_once);
        assert_eq!((control.sent_bytes(), transfers.counters().cold), (0, 1));
        cue.as_mut().await.unwrap();
        drop(cue);
        drop(near);
        assert!(reading.join().unwrap() == content(0..6 << 20));
    });
}

/// The part of the thread's time, in thousandths, that sending under a schedule takes once it has
/// settled.
async fn used(schedule: Schedule, left_to_others: f64) -> u64 {
    let file = film(8 << 20);
    let transfers = Transfers::new(Settings {
        left_to_others,
        ..Settings::default()
    });
    let policy = Policy {
        schedule,
        limit: None,
    };
    let (near, far) = pair().await;
    let reading = thread::spawn(move || io::copy(&mut &far, &mut io::sink()));
    let control = Control::default();
    let clocks = || (monotonic_ns(), thread_cpu_ns());
    let mut begin = clocks();
    for part_ns in [100_000_000, 300_000_000] {
        begin = clocks();
        while monotonic_ns() - begin.0 < part_ns {
            let sent = transfers.cue(&file, 0..8 << 20, &near, &policy, &control);
            sent.await.unwrap();
        }
    }
    let end = clocks();
    drop(near);
    reading.join().unwrap().unwrap();
    1000 * (end.1 - begin.1) / (end.0 - begin.0)
}

#[test]
fn adaptive_transfers_leave_a_part_of_the_thread_to_others() {
    run(async {
        let all = used(Schedule::Fair, 0.97).await;
        let few = used(Schedule::Adaptive, 0.97).await;
        // They keep to 30; on a busy machine the others do not get so much more.
        let has_little = all < 200;
        assert!(
            few < 100 && (has_little || few * 2 < all),
            "{few} of {all} thousandths"
        );
    });
}

#[test]
fn transfers_that_share_a_rate_share_it_evenly() {
    let file = film(4 << 20);
    run(async {
        // So slow that no reader is behind, however seldom it runs: one whose socket is full cannot
        // have its share.
        let rate = Rate {
            bytes_a_second: 4_000_000,
            burst_bytes: 50_000,
        };
        let transfers = Transfers::new(Settings {
            rate_max: Some(rate),
            ..Settings::default()
        });
        let controls: Vec<_> = (0..8).map(|_| Arc::new(Control::default())).collect();
        let mut tasks = Vec::new();
        for control in &controls {
            let (near, far) = pair().await;
            let reading = reading(far);
            let (transfers, file) = (Rc::clone(&transfers), Arc::clone(&file));
            let control = Arc::clone(control);
            tasks.push(spawn_local(async move {
                let policy = Policy::default();
                let sent = transfers.cue(&file, 0..4 << 20, &near, &policy, &control);
                assert!(matches!(sent.await, Err(TransferError::Cancelled)));
                drop(near);
                tokio::task::spawn_blocking(|| reading.join().unwrap())
                    .await
                    .unwrap();
            }));
        }
        let sent = || controls.iter().map(|control| control.sent_bytes());
        while sent().sum::<u64>() < 8 << 20 {
            sleep(Duration::from_millis(1)).await;
        }
        let evenness = jain(sent().map(|bytes| bytes as f64));
        controls.iter().for_each(|control| control.cancel());
        for task in tasks {
            task.await.unwrap();
        }
        assert!(evenness >= 0.99, "{evenness}");
    });
}
