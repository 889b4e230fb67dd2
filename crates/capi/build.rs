//! Names the shared library as programs ask for it: by the version of its ABI.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libonrush.so.1");
}
