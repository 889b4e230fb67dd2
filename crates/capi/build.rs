//! Names the shared library as programs ask for it, by the version of its ABI, and keeps others'
//! names out of it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libonrush.so.1");
    // What libraries beneath this one export for C is not of this one's ABI.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
