//! Puts the game that comes with the program where the program can take it in; without the game there is an empty one, and
//! the program says so.

use std::path::Path;
use std::{env, fs};

const BUNDLED_GAME: &str = "../../games/tennis.nes";

fn main() {
    println!("cargo::rerun-if-changed={BUNDLED_GAME}");
    let out = env::var_os("OUT_DIR").expect("cargo says where to build");
    let image = fs::read(BUNDLED_GAME).unwrap_or_default();
    fs::write(Path::new(&out).join("bundled.nes"), image).expect("what cargo gave can be written to");
}
