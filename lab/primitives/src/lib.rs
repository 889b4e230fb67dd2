//! The smallest things a machine does, each alone and repeatable: what `onrush-lab measure` times.
//!
//! Each function does one thing a given number of times and nothing else; how often, how long and
//! what it means is decided by the caller. What a compiler could leave out is written in assembly,
//! or gives back a value that depends on every step.

/// An enum of which there is a list (`ALL`, in this order) and, if they are given, names: it is
/// told (`name`, `Display`) and asked for (`FromStr`) by them.
///
/// ```
/// onrush_primitives::named! {
///     /// A colour.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Colour {
///         /// As blood.
///         Red = "red",
///         /// As the sky.
///         Blue = "blue",
///     }
/// }
/// assert_eq!(Colour::ALL.map(Colour::name), ["red", "blue"]);
/// assert_eq!("blue".parse(), Ok(Colour::Blue));
/// assert_eq!("pink".parse::<Colour>().unwrap_err(), "ask for red, blue");
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

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $Name {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                match name {
                    $($name => Ok(Self::$Value),)*
                    _ => Err(format!("ask for {}", [$($name),*].join(", "))),
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
pub mod cork;
pub mod counter;
pub mod hardware;
pub mod latency;
pub mod leaving;
pub mod map;
pub mod metering;
pub mod packet;
pub mod process;
pub mod reader;
pub mod remap;
pub mod sampling;
pub mod segment;
pub mod sendgrp;
pub mod switch;
