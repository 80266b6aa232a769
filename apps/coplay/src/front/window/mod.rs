//! A game in a window.

mod paint;
mod shot;

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use eframe::egui::{self, Event, Key as Pressed, TextureHandle, TextureOptions, ViewportCommand};

use super::Look;
use crate::config::Config;
use crate::fit::Growth;
use crate::hands::{Keyboard, edits};
use crate::key::Key;
use crate::net::quit::QUIT_AGAIN;
use crate::palette::PAPER;
use crate::scene::Command;
use crate::stage::View;
use crate::trouble::Trouble;
use shot::Shot;

/// Points below the pictures: the status line, and a graph with its dials.
const STATUS: f32 = 28.0;
const GRAPH: f32 = 190.0;
/// Points above each picture that has a caption.
const CAPTION: f32 = 28.0;
/// Points between pictures and around them.
const GAP: f32 = 8.0;

/// The window as a front end.
struct Window {
    view: View,
    keyboard: Keyboard,
    growth: Growth,
    textures: Vec<TextureHandle>,
    shot: Shot,
    /// When closing the window last led to a question.
    asked_to_close: Option<Instant>,
}

/// Shows a game until it is over, or somebody closes the window. Where none can be opened, the view is given back, with the reason.
pub(super) fn run(view: View, look: &Look, config: &Config) -> Result<Result<(), Trouble>, Box<(View, Trouble)>> {
    let title = format!("{} – coplay", look.title);
    let viewport = egui::ViewportBuilder::default()
        .with_title(&title)
        .with_app_id("coplay")
        .with_inner_size(size(look, config.scale))
        .with_min_inner_size([320.0, 240.0])
        .with_fullscreen(config.fullscreen);
    let options = eframe::NativeOptions { viewport, persist_window: false, centered: true, ..Default::default() };
    let shot = Shot::new(look.screenshot.clone());
    let window = Window {
        keyboard: Keyboard::new(config),
        growth: if config.integer { Growth::Whole } else { Growth::Free },
        textures: vec![],
        shot: shot.clone(),
        asked_to_close: None,
        view,
    };
    // It stays here until there is a window to put it into.
    let waiting = Cell::new(Some(window));
    let opened = open(|| {
        let begin: eframe::AppCreator<'_> = Box::new(|creation| {
            let window = waiting.take().ok_or("a window is opened once")?;
            Ok(Box::new(window.begin(&creation.egui_ctx)))
        });
        eframe::run_native(&title, options, begin)
    });
    let failed = |why: &str| {
        Trouble::failure(format!("no window can be opened: {why}")).hint("say --terminal to play in the terminal")
    };
    match (opened, waiting.take()) {
        (Ok(()), _) => Ok(shot.outcome()),
        (Err(why), Some(window)) => Err(Box::new((window.view, failed(&why.to_string())))),
        (Err(NotOpened::Fault(panic)), None) => resume_unwind(panic),
        (Err(NotOpened::Error(why)), None) => Ok(Err(failed(&why))),
    }
}

/// Why there is no window, or none any more.
enum NotOpened {
    Error(String),
    /// Somebody took for granted what is not there: a library of the system that is missing is found out by a panic.
    Fault(Box<dyn Any + Send>),
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(why) => write!(f, "{why}"),
            Self::Fault(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
                write!(f, "{}", text.unwrap_or("something that it needs is missing").replace('\n', " "))
            }
        }
    }
}

/// Opens a window and waits for its end.
fn open(run: impl FnOnce() -> eframe::Result) -> Result<(), NotOpened> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(ended) => ended.map_err(|error| NotOpened::Error(error.to_string())),
        Err(panic) => Err(NotOpened::Fault(panic)),
    }
}

/// Points for so many pictures of so many rows, and what is below them.
fn size(look: &Look, scale: u32) -> [f32; 2] {
    let (count, rows, aspect) = look.pictures;
    // Two pictures side by side are each a step smaller.
    let scale = if count > 1 { scale.saturating_sub(1).max(1) } else { scale };
    let (height, count) = (rows.max(1) as f32 * scale as f32, count.max(1) as f32);
    let caption = if count > 1.0 { CAPTION } else { 0.0 };
    let below = STATUS + if look.graph { GRAPH } else { 0.0 };
    [(height * aspect + GAP) * count + GAP, height + caption + below + GAP * 2.0]
}

/// The usual fonts. Arrows and other signs come from the one with letters of equal width, which is the only one that has them.
fn fonts() -> egui::FontDefinitions {
    let mut fonts = egui::FontDefinitions::default();
    let equal = fonts.families.get(&egui::FontFamily::Monospace).cloned().unwrap_or_default();
    let usual = fonts.families.entry(egui::FontFamily::Proportional).or_default();
    usual.extend(equal.into_iter().filter(|name| !usual.contains(name)).collect::<Vec<_>>());
    fonts
}

impl Window {
    fn begin(self, ctx: &egui::Context) -> Self {
        ctx.set_visuals(egui::Visuals::dark());
        ctx.set_fonts(fonts());
        // The game does not wait for the window: it wakes a thread, and that one wakes the window.
        let (over, waker) = (self.view.over(), ctx.clone());
        let wake = move || {
            while !over() {
                std::thread::park();
                waker.request_repaint();
            }
        };
        if let Ok(thread) = std::thread::Builder::new().name("waker".into()).spawn(wake) {
            self.view.wake(thread.thread().clone());
        }
        self
    }

    fn on_events(&mut self, ctx: &egui::Context) {
        let events = ctx.input(|input| input.events.clone());
        for event in events {
            match event {
                Event::Text(text) | Event::Paste(text) if self.view.scene().typing.is_some() => {
                    text.chars().for_each(|sign| self.view.send(Command::Type(sign)));
                }
                // Ctrl+C only ever copies: the text may be gone by the time the keys are pressed.
                Event::Copy => self.view.scene().copy.iter().for_each(|text| ctx.copy_text(text.clone())),
                // A held key repeats, which must not answer the question that its first press led to.
                Event::Key { key: Pressed::Q, pressed: true, repeat: true, modifiers, .. } if modifiers.command => {}
                Event::Key { key: Pressed::Q, pressed: true, modifiers, .. } if modifiers.command => {
                    self.view.send(Command::Quit);
                }
                Event::Key { key, pressed, modifiers, .. } => self.on_key(ctx, key, pressed, modifiers),
                Event::WindowFocused(false) => {
                    if let Some(command) = self.keyboard.let_go(self.view.hands()) {
                        self.view.send(command);
                    }
                }
                _ => {}
            }
        }
    }

    /// A request to close the window asks first where others would be left alone; a second one closes it, whatever the game does.
    fn on_close(&mut self, ctx: &egui::Context) {
        if ctx.input(|input| input.viewport().close_requested()) && self.closing_asks(Instant::now()) {
            ctx.send_viewport_cmd(ViewportCommand::CancelClose);
            self.view.send(Command::Quit);
        }
    }

    /// Takes the newest scene over; `false` if there is none since the last. A scene without the question after one with it shows that
    /// the player stays, so the next request to close asks again.
    fn look(&mut self) -> bool {
        let could_ask = self.view.scene().asks_to_quit;
        let fresh = self.view.look();
        if !could_ask && self.view.scene().asks_to_quit {
            self.asked_to_close = None;
        }
        fresh
    }

    fn closing_asks(&mut self, now: Instant) -> bool {
        let asked = self.asked_to_close.is_some_and(|asked| now.saturating_duration_since(asked) < QUIT_AGAIN);
        let asks = self.view.scene().asks_to_quit && !self.view.is_over() && !asked;
        self.asked_to_close = asks.then_some(now);
        asks
    }

    fn on_key(&mut self, ctx: &egui::Context, pressed: Pressed, down: bool, modifiers: egui::Modifiers) {
        let Some(key) = translate(pressed) else { return };
        if down && self.view.scene().typing.is_some() {
            if let Some(command) = edits(key) {
                self.view.send(command);
            }
            return;
        }
        let menu = self.view.scene().overlay.as_ref().is_some_and(|overlay| overlay.chosen.is_some());
        match self.keyboard.on_key(self.view.hands(), key, down, modifiers.shift, menu) {
            Some(Command::Fullscreen) => {
                let full = ctx.input(|input| input.viewport().fullscreen.unwrap_or(false));
                ctx.send_viewport_cmd(ViewportCommand::Fullscreen(!full));
            }
            Some(command) => self.view.send(command),
            None => {}
        }
    }

    fn load_textures(&mut self, ctx: &egui::Context) {
        let screens = &self.view.scene().screens;
        self.textures.truncate(screens.len());
        for (at, screen) in screens.iter().enumerate() {
            let image = egui::ColorImage::from_rgba_premultiplied([screen.width, screen.height], &screen.rgba);
            let options = if screen.smooth { TextureOptions::LINEAR } else { TextureOptions::NEAREST };
            match self.textures.get_mut(at) {
                Some(texture) => texture.set(image, options),
                None => self.textures.push(ctx.load_texture(format!("screen {at}"), image, options)),
            }
        }
    }
}

impl eframe::App for Window {
    fn ui(&mut self, ui: &mut egui::Ui, _frame: &mut eframe::Frame) {
        let ctx = ui.ctx().clone();
        self.view.ready();
        self.on_events(&ctx);
        self.on_close(&ctx);
        if self.look() {
            self.load_textures(&ctx);
        }
        paint::paint(ui, self.view.scene(), &self.textures, self.growth, |command| self.view.send(command));
        if self.view.is_over() && self.shot.is_done(&ctx) {
            ctx.send_viewport_cmd(ViewportCommand::Close);
        }
    }

    fn clear_color(&self, _visuals: &egui::Visuals) -> [f32; 4] {
        let [red, green, blue] = PAPER.map(|part| f32::from(part) / 255.0);
        [red, green, blue, 1.0]
    }
}

fn translate(key: Pressed) -> Option<Key> {
    let name = match key {
        Pressed::ArrowUp => "Up",
        Pressed::ArrowDown => "Down",
        Pressed::ArrowLeft => "Left",
        Pressed::ArrowRight => "Right",
        Pressed::OpenBracket => "LeftBracket",
        Pressed::CloseBracket => "RightBracket",
        Pressed::Questionmark => "Question",
        Pressed::Exclamationmark => "Exclamation",
        other => other.name(),
    };
    Key::named(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::{Stage, stage};

    /// A window that nobody sees, and the game behind it.
    fn window() -> (Window, Stage) {
        let (stage, view) = stage();
        let keyboard = Keyboard::new(&Config::default());
        (
            Window {
                view,
                keyboard,
                growth: Growth::Whole,
                textures: vec![],
                shot: Shot::new(None),
                asked_to_close: None,
            },
            stage,
        )
    }

    /// What the window does about some events.
    fn after(window: &mut Window, events: Vec<Event>) -> egui::FullOutput {
        window.look();
        let input = egui::RawInput { events, ..Default::default() };
        let mut done = egui::Context::default().run_ui(input, |ui| window.on_events(ui.ctx()));
        done.textures_delta.clear();
        done
    }

    #[test]
    fn ctrl_c_copies_and_never_quits() {
        let (mut window, mut stage) = window();
        stage.show(|scene| scene.copy = Some("udp://a:1#x".into()));
        let done = after(&mut window, vec![Event::Copy]).platform_output.commands;
        assert!(matches!(&done[..], [egui::OutputCommand::CopyText(text)] if text == "udp://a:1#x"), "{done:?}");
        assert_eq!(stage.poll_command(), None);
        // The lobby is gone a moment later, and with it what could be copied.
        stage.show(|scene| scene.copy = None);
        let done = after(&mut window, vec![Event::Copy]).platform_output.commands;
        assert!(done.is_empty(), "{done:?}");
        assert_eq!(stage.poll_command(), None, "Ctrl+C ended the game");
    }

    /// Asks the window to close; returns whether it does.
    fn close(window: &mut Window) -> bool {
        window.look();
        let mut input = egui::RawInput::default();
        let root = input.viewports.entry(egui::ViewportId::ROOT).or_default();
        root.events.push(egui::ViewportEvent::Close);
        let mut done = egui::Context::default().run_ui(input, |ui| window.on_close(ui.ctx()));
        done.textures_delta.clear();
        let root = &done.viewport_output[&egui::ViewportId::ROOT];
        !root.commands.contains(&ViewportCommand::CancelClose)
    }

    #[test]
    fn a_held_ctrl_q_asks_to_quit_once() {
        let (mut window, mut stage) = window();
        let key = |pressed| Event::Key {
            key: Pressed::Q,
            physical_key: None,
            pressed,
            repeat: false,
            modifiers: egui::Modifiers::COMMAND,
        };
        // The context marks presses of a key that is down as repeats.
        after(&mut window, vec![key(true), key(true), key(true)]);
        assert_eq!((stage.poll_command(), stage.poll_command()), (Some(Command::Quit), None));
        after(&mut window, vec![key(true), key(false), key(true)]);
        assert_eq!((stage.poll_command(), stage.poll_command()), (Some(Command::Quit), Some(Command::Quit)));
    }

    #[test]
    fn closing_the_window_asks_again_after_the_question_was_withdrawn() {
        let (mut window, mut stage) = window();
        let mut show = |window: &mut Window, asks| {
            stage.show(|scene| scene.asks_to_quit = asks);
            window.look();
        };
        show(&mut window, true);
        assert!(!close(&mut window));
        // The question is shown, and withdrawn by Esc.
        show(&mut window, false);
        show(&mut window, true);
        assert!(!close(&mut window), "it quit unasked");
        show(&mut window, true);
        assert!(close(&mut window), "a game that does not answer is closed");
    }

    #[test]
    fn closing_the_window_asks_once_while_others_play() {
        let (mut window, mut stage) = window();
        assert!(close(&mut window), "nobody else plays");
        stage.show(|scene| scene.asks_to_quit = true);
        assert!(!close(&mut window));
        assert_eq!(stage.poll_command(), Some(Command::Quit), "the game shows the question");
        assert!(close(&mut window), "a game that does not answer is closed, too");
        assert!(!close(&mut window) && stage.poll_command().is_some(), "asked again");
        stage.show(|scene| scene.asks_to_quit = false);
        assert!(close(&mut window), "the question is on the screen");
        stage.show(|scene| scene.asks_to_quit = true);
        window.view.look();
        drop(stage);
        assert!(close(&mut window), "the game is over");
    }

    #[test]
    fn every_key_of_the_settings_can_be_pressed_in_a_window() {
        let known: Vec<Key> = Pressed::ALL.iter().filter_map(|key| translate(*key)).collect();
        let config = Config::default();
        let all = config.players.iter().flatten().map(|(_, keys)| keys).chain(config.keys.iter().map(|(_, keys)| keys));
        for key in all.flatten() {
            assert!(known.contains(key), "{key:?}");
        }
    }

    #[test]
    fn a_library_that_is_missing_is_no_fault_of_ours() {
        let why = open(|| panic!("Library libxkbcommon-x11.so\ncould not be loaded.")).map_err(|why| why.to_string());
        assert_eq!(why, Err("Library libxkbcommon-x11.so could not be loaded.".into()));
    }

    #[test]
    fn a_window_has_room_for_its_pictures() {
        let look = Look { pictures: (1, 240, 4.0 / 3.0), ..Look::default() };
        let [width, height] = size(&look, 3);
        assert!(width >= 960.0 && height >= 720.0 + STATUS);
    }
}
