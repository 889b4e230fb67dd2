//! The parts that paths are made of.

use onrush_primitives::named;
use serde::{Deserialize, Serialize};

named! {
    /// A part of a path. All costs are ns of processor time, without what other terms stand for.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Term {
        /// Into the kernel and back.
        Crossing = "crossing",
        /// A read of a cached file, without its bytes.
        ReadCall = "read",
        /// A byte copied that was not in the processor's cache.
        ColdByte = "cold byte",
        /// A byte copied that was.
        HotByte = "hot byte",
        /// A load from memory: what the first byte of something costs, before the processor has
        /// understood that it will be read on. While a packet passes the stack, it forgets.
        Miss = "miss",
        /// A byte copied to a long train, which no cache close by holds.
        TrainByte = "byte of a train",
        /// The same from memory that no cache close by holds either.
        ColdTrainByte = "cold byte of a train",
        /// A packet's way through the network stack, alone.
        Packet = "packet",
        /// The same for a packet that was put together while it was held back.
        HeldPacket = "held packet",
        /// A packet among others of one `sendmmsg`, its way through the stack included.
        Message = "message",
        /// A train's way through the stack.
        Train = "train",
        /// A packet in a train.
        Segment = "segment",
        /// A packet in a train whose bytes are referred to.
        ReferredSegment = "referred segment",
        /// A packet looked up in the plan by the program, to find how many are a train.
        Planned = "planned packet",
        /// A further piece of a gathered send.
        Piece = "piece",
        /// A page of a mapped file, touched for the first time.
        Fault = "fault",
        /// The same when it is the kernel that takes a reference to the page: it needs no trap
        /// (mm/gup.c, `faultin_page`).
        PinFault = "fault by the kernel",
        /// An option set on a socket.
        Set = "option",
        /// A piece appended to a packet that is held back.
        Append = "append",
        /// A `sendfile`, without its pages.
        SpliceCall = "splice",
        /// A page moved by reference.
        SplicePage = "spliced page",
        /// A page of a file in memory (memfd) moved by reference.
        MemoryPage = "spliced memory page",
        /// A page lent to a pipe and moved on.
        Lend = "lend",
        /// What a splice to a socket adds to a splice to nowhere and a packet.
        SpliceOut = "splice to a socket",
        /// A further page spliced to a socket, beyond one that is spliced to nowhere.
        SpliceOutPage = "page to a socket",
        /// MSG_ZEROCOPY: its bookkeeping and the message that memory is free, a page included.
        Notification = "notification",
        /// A further page pinned for one send.
        PinnedPage = "pinned page",
        /// The same, a part of a huge page.
        PinnedHugePage = "pinned huge page",
        /// A further piece pinned for one send.
        PinnedPiece = "pinned piece",
        /// An entry of a ring.
        Entry = "entry",
        /// What an entry that sends adds to an entry and a packet.
        EntrySend = "entry that sends",
        /// What a program does for an entry that sends: it makes it, notes what it stands for, and
        /// looks up whose its answers are.
        Account = "account of an entry",
        /// An entry that a thread of the kernel fetches: what it takes whoever made it, its
        /// accounts included.
        PolledEntry = "polled entry",
        /// To sleep until that thread has done something, and to wake up.
        Sleep = "sleep",
        /// That an entry waits for the one before.
        Link = "link",
        /// What a link adds if the entry sends: it is not sent where it is handed over but by what
        /// the kernel has put off (io_uring/io_uring.c, `io_queue_next`), and so is the message
        /// that its memory is free.
        LinkSend = "link of a send",
        /// A ring's crossing, beyond a plain one.
        RingCrossing = "ring crossing",
        /// What SEND_ZC adds to a train from registered memory: its message that memory is free.
        Release = "release",
        /// What SEND_ZC adds if the memory has to be pinned, a page included.
        PinnedRelease = "pin and release",
        /// What a train takes more if its memory was not sent from a moment ago.
        ColdTrain = "cold train",
        /// What a train takes more if it is another client's than the one before: its socket is in
        /// no cache.
        Session = "session",
        /// A copy for one member more that a program at the device makes.
        Clone = "clone",
        /// A small write to a connection, its way to the far end included, where nobody reads yet.
        StreamWrite = "write to a stream",
        /// What TCP takes for a byte that it refers to, its acknowledgements included.
        StreamByte = "byte of a stream",
        /// The same over loopback.
        LoopByte = "byte over loopback",
    }
}
