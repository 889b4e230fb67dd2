//! Rates that change under way.

use std::os::unix::fs::FileExt;

use super::*;

const BYTES: usize = 1 << 20;

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
