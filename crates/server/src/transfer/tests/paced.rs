//! Pauses that are made only while somebody waits, and rates that change under way.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use onrush_sys::thread::RunDelay;

use super::*;

/// What the kernel would say of the thread's waiting.
struct Told {
    file: File,
    has_neighbour: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Told {
    /// Says all the time that the thread runs, and waits as long where it has a neighbour.
    fn start() -> (Self, JoinHandle<()>) {
        let file = tempfile::tempfile().unwrap();
        let told = Self {
            file: file.try_clone().unwrap(),
            has_neighbour: Arc::default(),
            is_over: Arc::default(),
        };
        let (has_neighbour, is_over) = (Arc::clone(&told.has_neighbour), Arc::clone(&told.is_over));
        let say = move |ran_ns: u64, delayed_ns: u64| {
            // Of one length, so that whoever reads finds all of it.
            let text = format!("{ran_ns:020} {delayed_ns:020} 1\n");
            file.write_all_at(text.as_bytes(), 0).unwrap();
        };
        say(0, 0);
        let telling = thread::spawn(move || {
            let (mut ran_ns, mut delayed_ns) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                ran_ns += 1_000_000;
                delayed_ns += 1_000_000 * u64::from(has_neighbour.load(Ordering::Relaxed));
                say(ran_ns, delayed_ns);
                thread::sleep(Duration::from_micros(200));
            }
        });
        (told, telling)
    }

    fn transfers(&self) -> Rc<Transfers> {
        let mut transfers = Transfers::new(Settings {
            left_to_others: YIELDED_TO_OTHERS,
            ..Settings::default()
        });
        let ours = Rc::get_mut(&mut transfers).unwrap();
        let delay = RunDelay::of(self.file.try_clone().unwrap()).unwrap();
        ours.neighbour = Neighbour::seen_by(Some(delay), Arc::clone(&ours.stats));
        transfers
    }
}

const BYTES: usize = 1 << 20;

/// Sends a film over and over until it did so with pauses, or without.
async fn until(transfers: &Transfers, has_pauses: bool, schedule: Schedule) {
    let file = film(BYTES);
    let policy = Policy {
        schedule,
        limit: None,
    };
    loop {
        let before = transfers.counters().yields;
        let (sent, received) = send(transfers, &file, 0..BYTES as u64, &policy).await;
        sent.unwrap();
        assert!(received == content(0..BYTES));
        if (transfers.counters().yields > before) == has_pauses {
            return;
        }
    }
}

#[test]
fn pauses_begin_with_a_neighbour_and_end_with_it() {
    let fixed = Yield::Fixed(Fixed {
        block_bytes: 64 << 10,
        blocks: 1,
        pause_ns: 2_000_000,
    });
    for schedule in [fixed, Yield::Share].map(Schedule::Yielding) {
        let (told, telling) = Told::start();
        run(async {
            let transfers = told.transfers();
            let alone = std::time::Instant::now();
            while alone.elapsed() < Duration::from_millis(200) {
                until(&transfers, false, schedule).await;
                assert_eq!(transfers.counters().yields, 0, "{schedule:?}");
            }
            told.has_neighbour.store(true, Ordering::Relaxed);
            until(&transfers, true, schedule).await;
            assert!(transfers.counters().delayed_ns > 0);
            told.has_neighbour.store(false, Ordering::Relaxed);
            until(&transfers, false, schedule).await;
        });
        told.is_over.store(true, Ordering::Relaxed);
        telling.join().unwrap();
    }
}

/// An hour's pause is made by whoever has no neighbour in vain.
#[test]
fn no_pause_is_made_where_nobody_waits_however_long_it_is() {
    let schedule = Schedule::Yielding(Yield::Fixed(Fixed {
        block_bytes: 8192,
        blocks: 1,
        pause_ns: 3_600_000_000_000,
    }));
    let (told, telling) = Told::start();
    run(async {
        let transfers = told.transfers();
        until(&transfers, false, schedule).await;
        assert_eq!(transfers.counters().yields, 0);
    });
    told.is_over.store(true, Ordering::Relaxed);
    telling.join().unwrap();
}

/// A pause for a client's own rate is none that was made for others.
#[test]
fn pauses_of_other_rates_are_not_counted() {
    let rate = Rate {
        bytes_a_second: 50_000_000,
        burst_bytes: 50_000,
    };
    run(async {
        let mut transfers = Transfers::new(Settings::default());
        let ours = Rc::get_mut(&mut transfers).unwrap();
        ours.neighbour = Neighbour::seen_by(None, Arc::clone(&ours.stats));
        let policy = Policy {
            schedule: Schedule::Yielding(Yield::Fixed(Fixed {
                block_bytes: 1 << 20,
                blocks: 1,
                pause_ns: 1,
            })),
            limit: Some(Limit::new(rate)),
        };
        let (sent, received) =
            send(&transfers, &film(BYTES / 2), 0..BYTES as u64 / 2, &policy).await;
        sent.unwrap();
        assert!(received == content(0..BYTES / 2));
        assert_eq!(transfers.counters().yields, 0);
    });
}

/// What an upload is to take next is decided before its client sends; and others go on meanwhile.
#[test]
fn a_rate_that_falls_while_a_client_is_silent_ends_nothing() {
    run(async {
        let transfers = Transfers::new(Settings::default());
        let (near, mut far) = pair().await;
        let file = Arc::new(tempfile::tempfile_in("/var/tmp").unwrap());
        let to = StoredTo {
            file: Arc::clone(&file),
            offset: 0,
            end: None,
            file_bytes_max: u64::MAX - 1,
            free_bytes_min: None,
            writes_early: false,
            held: None,
        };
        let (policy, control) = (
            Policy {
                schedule: Schedule::Adaptive,
                limit: None,
            },
            Control::default(),
        );
        let mut store = std::pin::pin!(transfers.store(&near, &to, &policy, &control));
        let silent = timeout(Duration::from_millis(20), store.as_mut()).await;
        assert!(silent.is_err(), "it waits for its client");
        let rate = Rate {
            bytes_a_second: 1_000_000_000,
            burst_bytes: 70_000,
        };
        let limit = transfers.arranger.limit();
        limit.with(|bucket| bucket.change(monotonic_ns(), rate));
        let sending = thread::spawn(move || far.write_all(&content(0..BYTES)));
        store.await.unwrap();
        sending.join().unwrap().unwrap();
        let mut stored = vec![0; BYTES];
        file.read_exact_at(&mut stored, 0).unwrap();
        assert!(stored == content(0..BYTES));
    });
}
