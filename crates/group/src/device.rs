//! The program at a device's egress: one for all groups, of this process and of others.
//!
//! A device takes 63 programs, and each makes all of its packets dearer. So a group looks for the
//! one that is there before it attaches another: this process's, or that of any process, which is
//! found by its name and held by a descriptor of its own (CAP_SYS_ADMIN; a process that has CAP_BPF
//! and CAP_NET_ADMIN alone attaches its own). It goes with its last user,
//! however that ends: nothing is pinned.
//!
//! A group adds what it shares with the program under its socket's cookie, which no other socket
//! ever has. What a killed process leaves there is taken out by whoever comes next, who knows by a
//! [`LifeSign`] that its group is gone.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{Array, HashOfMaps, IterableMap, Map, MapData, MapInfo, ProgramArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramInfo, SchedClassifier, TcAttachType, loaded_programs};
use aya::{Ebpf, EbpfLoader, Pod, include_bytes_aligned};

use super::bpf;
use super::error::KernelError;
use super::table::{LaneName, Mapped, Pass, Slot};

/// Groups that the program of a device serves.
pub const GROUPS_MAX: u32 = 65_536;
/// Lanes of all of them.
const LANES_OF_GROUPS_MAX: u32 = 2 * GROUPS_MAX;

/// How long the name of a group that is gone may seem to be taken.
const NAME_TIME_MAX: Duration = Duration::from_secs(1);

/// What a group shares with the programs of all devices that it sends by.
pub(super) struct GroupPass {
    pub(super) pass: Mapped<Pass>,
    entry: PassEntry,
    #[expect(dead_code, reason = "held until the group's entries are gone")]
    life_sign: LifeSign,
}

/// The same, to be entered at devices.
#[derive(Clone)]
pub(super) struct PassEntry {
    cookie: u64,
    array: Arc<Array<MapData, Pass>>,
}

/// A group at a device. Its entries there go with it.
pub(super) struct AtDevice {
    program: Arc<Program>,
    pub(super) ifindex: u32,
    cookie: u64,
}

/// Something that a lane shares with the program of its device. Its entry there goes with it.
pub(super) struct Table<T> {
    mapped: Mapped<T>,
    name: LaneName,
    at: Arc<AtDevice>,
}

/// The program at a device.
struct Program {
    id: u32,
    /// The device, in its network namespace; `None` where namespaces cannot be told apart.
    place: Option<(u64, u32)>,
    tables: Mutex<Tables>,
    #[expect(dead_code, reason = "keeps it attached")]
    attachment: Attachment,
}

/// By cookie, the pass of a group; by the lane's name, its members.
struct Tables {
    passes: HashOfMaps<MapData, u64, Array<MapData, Pass>>,
    members: HashOfMaps<MapData, LaneName, Array<MapData, Slot>>,
}

#[expect(
    dead_code,
    reason = "descriptors, which keep things alive in the kernel"
)]
enum Attachment {
    /// Who loaded it has all.
    Own {
        next: ProgramArray<MapData>,
        ebpf: Ebpf,
    },
    /// The array empties when nobody has a descriptor of it, so that each user has.
    Found { next: MapData, link: OwnedFd },
}

/// Names a group's cookie as long as the group lives, to all in its network namespace: an abstract
/// address (unix(7)), which the kernel takes back whatever ends us.
struct LifeSign {
    #[expect(dead_code, reason = "has the name as long as it is open")]
    socket: UnixDatagram,
}

impl GroupPass {
    /// For the group of that socket. The calling thread is in its network namespace.
    pub(super) fn new(cookie: u64) -> Result<Self, KernelError> {
        let life_sign = LifeSign::give_soon(cookie).map_err(KernelError::LifeSign)?;
        let array = Array::create(1, ARRAY_FLAGS)?;
        Ok(Self {
            pass: mapped(&array)?,
            entry: PassEntry {
                cookie,
                array: Arc::new(array),
            },
            life_sign,
        })
    }

    pub(super) fn entry(&self) -> PassEntry {
        self.entry.clone()
    }
}

impl PassEntry {
    /// Enters the group at a device of the calling thread's network namespace.
    pub(super) fn enter(
        &self,
        netns: Option<u64>,
        (ifindex, device): (u32, &str),
    ) -> Result<AtDevice, KernelError> {
        let program = Program::at(netns, ifindex, device)?;
        program
            .tables()
            .passes
            .insert(self.cookie, &*self.array, 0)?;
        Ok(AtDevice {
            program,
            ifindex,
            cookie: self.cookie,
        })
    }
}

impl AtDevice {
    /// A table of so many members, for the lane of that number of the group.
    pub(super) fn lane(
        self: &Arc<Self>,
        number: u16,
        members_max: u32,
    ) -> Result<Table<Slot>, KernelError> {
        let array = Array::create(members_max, ARRAY_FLAGS)?;
        let name = LaneName {
            cookie: self.cookie,
            number: number.into(),
            pad: 0,
        };
        let mapped = mapped(&array)?;
        self.program.tables().members.insert(name, &array, 0)?;
        Ok(Table {
            mapped,
            name,
            at: Arc::clone(self),
        })
    }
}

impl Drop for AtDevice {
    fn drop(&mut self) {
        // It is there, unless somebody has taken it out.
        self.program.tables().passes.remove(&self.cookie).ok();
    }
}

impl<T: Copy> Table<T> {
    pub(super) fn read(&self, index: usize) -> T {
        self.mapped.read(index)
    }

    pub(super) fn write(&mut self, index: usize, value: T) {
        self.mapped.write(index, value);
    }

    pub(super) fn lane_number(&self) -> u16 {
        u16::try_from(self.name.number).expect("it was made of one")
    }

    pub(super) fn at(&self) -> &Arc<AtDevice> {
        &self.at
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        self.at.program.tables().members.remove(&self.name).ok();
    }
}

/// Whether the kernel takes the program at all, seen at a device where it harms nobody.
pub(super) fn try_it(netns: Option<u64>) -> Result<(), KernelError> {
    let known = programs().iter().any(|it| it.strong_count() > 0);
    if !known {
        // The loopback device is the first of each namespace.
        drop(Program::at(netns, 1, "lo")?);
    }
    Ok(())
}

/// Those that this process uses.
static PROGRAMS: Mutex<Vec<Weak<Program>>> = Mutex::new(Vec::new());

fn programs() -> MutexGuard<'static, Vec<Weak<Program>>> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Program {
    /// The one at that device, attached if need be.
    fn at(netns: Option<u64>, ifindex: u32, device: &str) -> Result<Arc<Self>, KernelError> {
        let place = netns.map(|netns| (netns, ifindex));
        // Held all the while, so that two groups that open at once do not attach two.
        let mut programs = programs();
        programs.retain(|it| it.strong_count() > 0);
        let ours = programs.iter().filter_map(Weak::upgrade);
        // A device that was deleted has taken its program with it, and its number may come again.
        let ours = ours.filter(|it| place.is_some() && it.place == place);
        if let Some(ours) = ours.into_iter().find(|it| it.is_attached(ifindex)) {
            return Ok(ours);
        }
        let program = match Self::find(ifindex, device) {
            Some((id, tables, attachment)) => Self::new(id, place, tables, attachment),
            None => Self::attach(place, device)?,
        };
        let program = Arc::new(program);
        programs.push(Arc::downgrade(&program));
        Ok(program)
    }

    fn new(id: u32, place: Option<(u64, u32)>, tables: Tables, attachment: Attachment) -> Self {
        Self {
            id,
            place,
            tables: Mutex::new(tables),
            attachment,
        }
    }

    fn is_attached(&self, ifindex: u32) -> bool {
        let attached = bpf::at_egress(ifindex).unwrap_or_default();
        attached.iter().any(|it| it.program_id == self.id)
    }

    fn attach(place: Option<(u64, u32)>, device: &str) -> Result<Self, KernelError> {
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("passes", GROUPS_MAX)
            .map_max_entries("members", LANES_OF_GROUPS_MAX)
            .load(PROGRAM)?;
        let attach = |source| KernelError::Attach {
            device: device.to_owned(),
            source,
        };
        classifier(&mut ebpf, "fan").load().map_err(attach)?;
        let mut next: ProgramArray<_> = taken(&mut ebpf, NEXT).try_into()?;
        next.set(0, classifier(&mut ebpf, "fan").fd().map_err(attach)?, 0)?;
        let tables = Tables {
            passes: taken(&mut ebpf, PASSES).try_into()?,
            members: taken(&mut ebpf, MEMBERS).try_into()?,
        };
        let groups = classifier(&mut ebpf, NAME);
        groups.load().map_err(attach)?;
        // A link of tcx, not a filter: the kernel takes it away with its last descriptor, whatever
        // ends us.
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        let attached = groups.attach_with_options(device, TcAttachType::Egress, options);
        attached.map_err(attach)?;
        let id = groups.info().map_err(attach)?.id();
        Ok(Self::new(id, place, tables, Attachment::Own { next, ebpf }))
    }

    /// The one that another process has attached there; `None` if there is none, or if this process
    /// may not use it.
    fn find(ifindex: u32, device: &str) -> Option<(u32, Tables, Attachment)> {
        let (_, there) = SchedClassifier::query_tcx(device, TcAttachType::Egress).ok()?;
        let groups = there.iter().find(|it| it.name_as_str() == Some(NAME))?;
        let mut attached = bpf::at_egress(ifindex).ok()?.into_iter();
        let attached = attached.find(|it| it.program_id == groups.id())?;
        let next = map_of(groups, NEXT)?;
        let link = bpf::link(attached.link_id).ok()?;
        // If its last user went a moment ago, the array is empty.
        let fan_id = bpf::first_program(next.fd().as_fd()).ok()?;
        let fan = loaded_programs()
            .filter_map(Result::ok)
            .find(|it| it.id() == fan_id)?;
        let mut tables = Tables {
            passes: Map::from_map_data(map_of(groups, PASSES)?)
                .ok()?
                .try_into()
                .ok()?,
            members: Map::from_map_data(map_of(&fan, MEMBERS)?)
                .ok()?
                .try_into()
                .ok()?,
        };
        tables.sweep();
        Some((groups.id(), tables, Attachment::Found { next, link }))
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    /// Takes out what killed processes have left.
    fn sweep(&mut self) {
        let cookies: Vec<_> = self.passes.keys().filter_map(Result::ok).collect();
        let gone = |cookie: &u64| LifeSign::give(*cookie).is_ok();
        let gone: Vec<_> = cookies.into_iter().filter(gone).collect();
        let lanes: Vec<LaneName> = self.members.keys().filter_map(Result::ok).collect();
        for lane in lanes.iter().filter(|lane| gone.contains(&lane.cookie)) {
            self.members.remove(lane).ok();
        }
        for cookie in gone {
            self.passes.remove(&cookie).ok();
        }
    }
}

impl LifeSign {
    /// The name may be taken for a moment though its group is gone: by another's [`Tables::sweep`],
    /// or by a child that a thread is making, which has all descriptors until it executes its
    /// program.
    fn give_soon(cookie: u64) -> io::Result<Self> {
        let give_up = Instant::now() + NAME_TIME_MAX;
        loop {
            match Self::give(cookie) {
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < give_up => {}
                given => return given,
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn give(cookie: u64) -> io::Result<Self> {
        let name = SocketAddr::from_abstract_name(format!("onrush-group/{cookie}"))?;
        let socket = UnixDatagram::bind_addr(&name)?;
        Ok(Self { socket })
    }
}

impl fmt::Debug for AtDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ifindex, cookie, ..
        } = self;
        write!(f, "group {cookie} at device {ifindex}")
    }
}

fn classifier<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut SchedClassifier {
    let program = ebpf.program_mut(name).expect("group.bpf.c defines it");
    program.try_into().expect("it is a classifier")
}

fn taken(ebpf: &mut Ebpf, name: &str) -> Map {
    ebpf.take_map(name).expect("group.bpf.c defines it")
}

/// The map of that name that a loaded program uses.
fn map_of(program: &ProgramInfo, name: &str) -> Option<MapData> {
    let ids = program.map_ids().ok()??;
    let infos = ids.into_iter().filter_map(|id| MapInfo::from_id(id).ok());
    let found = infos
        .into_iter()
        .find(|it| it.name_as_str() == Some(name))?;
    MapData::from_id(found.id()).ok()
}

fn mapped<T: Pod>(array: &Array<MapData, T>) -> Result<Mapped<T>, KernelError> {
    let (map, bytes) = (array.map(), size_of::<T>());
    let value_bytes = u32::try_from(bytes).expect("a few bytes");
    Mapped::of(map.fd(), value_bytes, array.len()).map_err(KernelError::Mmap)
}

/// A later layout of the maps has another name.
const NAME: &str = "onrush_groups_1";
const NEXT: &str = "next";
const PASSES: &str = "passes";
const MEMBERS: &str = "members";
/// Shared by mmap, and of any length (include/uapi/linux/bpf.h).
const ARRAY_FLAGS: u32 = BPF_F_MMAPABLE | BPF_F_INNER_MAP;
const BPF_F_MMAPABLE: u32 = 1 << 10;
const BPF_F_INNER_MAP: u32 = 1 << 12;

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/group.o"));
