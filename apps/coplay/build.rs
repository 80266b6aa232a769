//! Copies the bundled game into `OUT_DIR`, from which the program includes it. If the game file is missing, the copy is
//! empty and the program reports at run time that it has no bundled game.

use std::path::Path;
use std::{env, fs};

const BUNDLED_GAME: &str = "../../games/tennis.nes";

fn main() {
    println!("cargo::rerun-if-changed={BUNDLED_GAME}");
    let out_dir = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let image = fs::read(BUNDLED_GAME).unwrap_or_default();
    fs::write(Path::new(&out_dir).join("bundled.nes"), image).expect("OUT_DIR is writable");
}
