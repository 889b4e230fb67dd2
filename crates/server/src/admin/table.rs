//! The form of the table of counters: a row says once what a number is called, what it means, and
//! where it is read.
//!
//! A row is `/// meaning`, `field: type = where it is read, Kind`, and the name of its metric if it
//! has one. Of the rows [`table!`] makes the struct that is the JSON, what fills it, and [`Row`]s,
//! of which the text for Prometheus and the table in `docs/metrics.md` come. Times of fields with
//! the unit `_ns` are seconds in their metrics.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::histogram::Histogram;

/// What a number is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// It only grows.
    Counter,
    /// It comes and goes.
    Gauge,
    /// Values, counted by size.
    Histogram,
    /// It says what something is.
    Info,
}

/// A number of a `T`.
#[derive(Debug)]
pub(super) struct Row<T> {
    /// Its name in the JSON; empty for a metric that several fields are made of.
    pub(super) field: &'static str,
    pub(super) kind: Kind,
    /// The name of its metric, and a label that tells its samples apart.
    pub(super) metric: Option<(&'static str, Option<&'static str>)>,
    help: &'static str,
    pub(super) samples: fn(&T) -> Samples,
}

impl<T> Row<T> {
    pub(super) const fn new(
        field: &'static str,
        kind: Kind,
        metric: Option<(&'static str, Option<&'static str>)>,
        help: &'static str,
        samples: fn(&T) -> Samples,
    ) -> Self {
        Self {
            field,
            kind,
            metric,
            help,
            samples,
        }
    }

    /// Whether it is a time in ns, which its metric says in seconds.
    pub(super) fn is_time(&self) -> bool {
        self.field.split('_').any(|part| part == "ns")
    }

    /// What it means: a sentence or more.
    pub(super) fn help(&self) -> &'static str {
        self.help.trim_start()
    }
}

/// What a metric says at one moment.
#[derive(Clone, Debug)]
pub(super) enum Samples {
    None,
    Whole(u64),
    Part(f64),
    /// By the value of its label.
    Labelled(Vec<(String, u64)>),
    Histogram(Histogram),
}

impl Samples {
    pub(super) fn labelled(values: Vec<(&'static str, u64)>) -> Self {
        let values = values.into_iter();
        Self::Labelled(values.map(|(of, n)| (of.to_owned(), n)).collect())
    }
}

/// A counter's value.
pub(super) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A type that a number in the table may have.
pub(super) trait Field: Clone {
    fn samples(&self) -> Samples {
        Samples::None
    }

    /// What of it happened since `earlier`.
    fn since(&self, _earlier: &Self) -> Self {
        self.clone()
    }

    /// That of two together.
    fn and(&self, _other: &Self) -> Self {
        self.clone()
    }
}

impl Field for u64 {
    fn samples(&self) -> Samples {
        Samples::Whole(*self)
    }

    fn since(&self, earlier: &Self) -> Self {
        self.saturating_sub(*earlier)
    }

    fn and(&self, other: &Self) -> Self {
        self + other
    }
}

impl Field for u32 {}

impl Field for usize {}

impl Field for SocketAddr {}

impl Field for f64 {
    fn samples(&self) -> Samples {
        Samples::Part(*self)
    }
}

impl Field for bool {
    fn samples(&self) -> Samples {
        Samples::Whole((*self).into())
    }
}

/// A name: 1, with the name as the value of the label.
impl Field for String {
    fn samples(&self) -> Samples {
        Samples::Labelled(vec![(self.clone(), 1)])
    }
}

/// Answers by the first digit of their status.
impl Field for [u64; 5] {
    fn samples(&self) -> Samples {
        let classes = (1..).zip(self);
        Samples::Labelled(classes.map(|(n, of)| (format!("{n}xx"), *of)).collect())
    }

    fn since(&self, earlier: &Self) -> Self {
        std::array::from_fn(|n| self[n].since(&earlier[n]))
    }

    fn and(&self, other: &Self) -> Self {
        std::array::from_fn(|n| self[n].and(&other[n]))
    }
}

impl Field for Histogram {
    fn samples(&self) -> Samples {
        Samples::Histogram(self.clone())
    }

    fn since(&self, earlier: &Self) -> Self {
        self.since(earlier)
    }

    fn and(&self, other: &Self) -> Self {
        self.clone().and(other)
    }
}

impl<T: Field> Field for Option<T> {
    fn samples(&self) -> Samples {
        self.as_ref().map_or(Samples::None, T::samples)
    }

    fn since(&self, earlier: &Self) -> Self {
        match (self, earlier) {
            (Some(now), Some(earlier)) => Some(now.since(earlier)),
            _ => self.clone(),
        }
    }
}

/// Each with the one in its place.
impl<T: Field> Field for Vec<T> {
    fn since(&self, earlier: &Self) -> Self {
        let both = self.iter().zip(earlier);
        both.map(|(now, earlier)| now.since(earlier)).collect()
    }
}

/// Makes a struct and all that is told of it from rows. `from` are the arguments of `of`, which
/// reads it; `metrics` are those that are made of several fields.
macro_rules! table {
    (@metric) => { None };
    (@metric $metric:literal) => { Some(($metric, None)) };
    (@metric $metric:literal by $label:literal) => { Some(($metric, Some($label))) };
    (
        $(#[$meta:meta])*
        pub struct $name:ident from ($($argument:ident: $from:ty),*) {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = $value:expr,
                    $kind:ident $($metric:literal $(by $label:literal)?)?;
            )+
        }
        metrics {
            $(
                $(#[doc = $sum_help:literal])+
                $sum_kind:ident $sum_metric:literal by $sum_label:literal = $sum_values:expr;
            )*
        }
    ) => {
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
        $(#[$meta])*
        pub struct $name {
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        impl $name {
            /// All that is told of it.
            pub(super) const ROWS: &[Row<Self>] = &[
                $(Row::new(
                    stringify!($field),
                    Kind::$kind,
                    table!(@metric $($metric $(by $label)?)?),
                    concat!($($help),+),
                    |of| Field::samples(&of.$field),
                ),)+
                $(Row::new(
                    "",
                    Kind::$sum_kind,
                    table!(@metric $sum_metric by $sum_label),
                    concat!($($sum_help),+),
                    |of| {
                        let values: fn(&Self) -> Vec<(&'static str, u64)> = $sum_values;
                        Samples::labelled(values(of))
                    },
                ),)*
            ];

            fn of($($argument: $from),*) -> Self {
                Self { $($field: $value,)+ }
            }

            /// What happened since `earlier`, and what is now: counters are the difference, all
            /// else stays.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($field: match Kind::$kind {
                        Kind::Counter | Kind::Histogram => {
                            Field::since(&self.$field, &earlier.$field)
                        }
                        Kind::Gauge | Kind::Info => self.$field.clone(),
                    },)+
                }
            }

            /// Counters and gauges of both together; what is said in words is this one's.
            #[must_use]
            pub fn and(&self, other: &Self) -> Self {
                Self {
                    $($field: match Kind::$kind {
                        Kind::Info => self.$field.clone(),
                        _ => Field::and(&self.$field, &other.$field),
                    },)+
                }
            }
        }

        impl Field for $name {
            fn since(&self, earlier: &Self) -> Self {
                self.since(earlier)
            }

            fn and(&self, other: &Self) -> Self {
                self.and(other)
            }
        }
    };
}

pub(super) use table;
