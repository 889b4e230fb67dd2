//! The smallest things a machine does, each alone and repeatable: what `onrush-lab measure` times.
//!
//! Each function does one thing a given number of times and nothing else; how often, how long and
//! what it means is decided by the caller. What a compiler could leave out is written in assembly,
//! or gives back a value that depends on every step.

/// An enum of which there is a list (`ALL`, in this order) and, if they are given, names (`name`).
///
/// ```
/// onrush_primitives::named! {
///     /// A colour.
///     #[derive(Debug, PartialEq)]
///     pub enum Colour {
///         /// As blood.
///         Red = "red",
///         /// As the sky.
///         Blue = "blue",
///     }
/// }
/// assert_eq!(Colour::ALL.map(Colour::name), ["red", "blue"]);
/// ```
#[macro_export]
macro_rules! named {
    ($(#[$attribute:meta])* $visible:vis enum $Name:ident {
        $($(#[$of_value:meta])* $Value:ident = $name:literal,)*
    }) => {
        $crate::named! {
            $(#[$attribute])* $visible enum $Name { $($(#[$of_value])* $Value,)* }
        }

        impl $Name {
            /// Its name, for people and files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Value => $name,)*
                }
            }
        }
    };
    ($(#[$attribute:meta])* $visible:vis enum $Name:ident {
        $($(#[$of_value:meta])* $Value:ident,)*
    }) => {
        $(#[$attribute])*
        $visible enum $Name { $($(#[$of_value])* $Value,)* }

        impl $Name {
            /// All, in the order of tables.
            pub const ALL: [Self; [$(stringify!($Value)),*].len()] = [$(Self::$Value),*];
        }
    };
}

pub mod bandwidth;
pub mod call;
pub mod code;
pub mod counter;
pub mod latency;
pub mod map;
pub mod packet;
pub mod process;
pub mod reader;
pub mod switch;
