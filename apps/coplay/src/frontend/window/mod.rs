//! Window front end: draws the scene with egui, and handles events of keyboard and pointer.

mod paint;
mod screenshot;

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use coplay_shell::error::AppError;
use eframe::egui::{self, Event, Key as Pressed, TextureHandle, TextureOptions, ViewportCommand};

use super::{DisplayOptions, status_keys};
use crate::config::{Action, UserSettings};
use crate::frontend::QUIT_CONFIRM_TIMEOUT;
use crate::input_state::{Keyboard, edit_command};
use crate::key::Key;
use crate::layout::Scaling;
use crate::palette::BACKGROUND;
use crate::scene::UiCommand;
use crate::ui_link::FrontendPort;
use screenshot::Screenshot;

/// Height of the status line, in points.
const STATUS_HEIGHT: f32 = 28.0;
/// Height of the graphs with the row of dials, in points.
const GRAPH_HEIGHT: f32 = 190.0;
/// Height of a caption above its picture, in points.
const CAPTION_HEIGHT: f32 = 28.0;
/// Gap between pictures and around them, in points.
const GAP: f32 = 8.0;

/// Window front end: keyboard state, textures of the pictures, and the state of closing.
struct WindowFrontend {
    port: FrontendPort,
    keyboard: Keyboard,
    scaling: Scaling,
    /// Text at the right end of the status line.
    status_keys: String,
    textures: Vec<TextureHandle>,
    screenshot: Screenshot,
    /// Time at which a request to close the window last raised the question whether to quit; `None` before the first,
    /// and after the question was confirmed or cancelled.
    close_confirmation_asked: Option<Instant>,
}

/// Shows a game until it ends or the user closes the window. If no window can be opened, returns the port with the
/// error.
pub(super) fn run(
    port: FrontendPort,
    display: &DisplayOptions,
    config: &UserSettings,
) -> Result<Result<(), AppError>, Box<(FrontendPort, AppError)>> {
    let title = format!("{} – coplay", display.title);
    let viewport = egui::ViewportBuilder::default()
        .with_title(&title)
        .with_app_id("coplay")
        .with_inner_size(initial_size(display, config.scale))
        .with_min_inner_size([320.0, 240.0])
        .with_fullscreen(config.fullscreen);
    let options = eframe::NativeOptions { viewport, persist_window: false, centered: true, ..Default::default() };
    let screenshot = Screenshot::new(display.screenshot.clone());
    let window = WindowFrontend {
        keyboard: Keyboard::new(config),
        scaling: if config.integer_scaling { Scaling::Integer } else { Scaling::Fractional },
        status_keys: status_keys(config.keys_of(Action::Help).first(), config),
        textures: vec![],
        screenshot: screenshot.clone(),
        close_confirmation_asked: None,
        port,
    };
    // Holds the front end until eframe has opened a window. If eframe cannot open one, the port is taken back from
    // here.
    let pending_window = Cell::new(Some(window));
    let result = run_catching_panics(|| {
        let create: eframe::AppCreator<'_> = Box::new(|creation| {
            let window = pending_window.take().ok_or("the window was already created")?;
            Ok(Box::new(window.start(&creation.egui_ctx)))
        });
        eframe::run_native(&title, options, create)
    });
    let failed = |why: &str| {
        AppError::failure(format!("cannot open a window: {why}")).hint("use --terminal to play in this terminal")
    };
    match (result, pending_window.take()) {
        (Ok(()), _) => Ok(screenshot.outcome()),
        (Err(why), Some(window)) => Err(Box::new((window.port, failed(&why.to_string())))),
        (Err(WindowError::Panic(panic)), None) => resume_unwind(panic),
        (Err(WindowError::Eframe(why)), None) => Ok(Err(
            AppError::failure(format!("the window failed: {why}")).hint("use --terminal to play in this terminal")
        )),
    }
}

/// Reason why a window could not be opened, or closed with an error.
enum WindowError {
    Eframe(String),
    /// Panic that ended the window. A dependency panics if a system library is missing.
    Panic(Box<dyn Any + Send>),
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eframe(why) => write!(f, "{why}"),
            Self::Panic(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
                write!(f, "{}", text.unwrap_or("unknown cause").replace('\n', " "))
            }
        }
    }
}

/// Runs a window until it closes, and turns a panic into an error.
fn run_catching_panics(run: impl FnOnce() -> eframe::Result) -> Result<(), WindowError> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(ended) => ended.map_err(|error| WindowError::Eframe(error.to_string())),
        Err(panic) => Err(WindowError::Panic(panic)),
    }
}

/// Returns the initial width and height of the window in points, with room for pictures, captions, graph and status
/// line.
fn initial_size(display: &DisplayOptions, scale: u32) -> [f32; 2] {
    let (count, rows, aspect) = display.pictures;
    // Several pictures side by side are each one scale step smaller.
    let scale = if count > 1 { scale.saturating_sub(1).max(1) } else { scale };
    let (height, count) = (rows.max(1) as f32 * scale as f32, count.max(1) as f32);
    let caption = if count > 1.0 { CAPTION_HEIGHT } else { 0.0 };
    let below = STATUS_HEIGHT + if display.has_graph { GRAPH_HEIGHT } else { 0.0 };
    [(height * aspect + GAP) * count + GAP, height + caption + below + GAP * 2.0]
}

/// Returns egui's fonts, with the monospace fonts as fallbacks, because only they contain arrows and other symbols.
fn fonts() -> egui::FontDefinitions {
    let mut fonts = egui::FontDefinitions::default();
    let monospace = fonts.families.get(&egui::FontFamily::Monospace).cloned().unwrap_or_default();
    let proportional = fonts.families.entry(egui::FontFamily::Proportional).or_default();
    proportional.extend(monospace.into_iter().filter(|name| !proportional.contains(name)).collect::<Vec<_>>());
    fonts
}

impl WindowFrontend {
    fn start(self, ctx: &egui::Context) -> Self {
        ctx.set_visuals(egui::Visuals::dark());
        ctx.set_fonts(fonts());
        // The game must not wait for the window: it unparks a thread, which requests the repaint.
        let (over, waker) = (self.port.over_probe(), ctx.clone());
        let wake = move || {
            while !over() {
                std::thread::park();
                waker.request_repaint();
            }
        };
        if let Ok(thread) = std::thread::Builder::new().name("waker".into()).spawn(wake) {
            self.port.set_waker(thread.thread().clone());
        }
        self
    }

    fn on_events(&mut self, ctx: &egui::Context) {
        let events = ctx.input(|input| input.events.clone());
        for event in events {
            match event {
                Event::Text(text) | Event::Paste(text) if self.port.scene().chat_draft.is_some() => {
                    text.chars().for_each(|character| self.port.send(UiCommand::TypeChar(character)));
                }
                // Ctrl+C only copies, never quits: the text may disappear just before the player presses the keys.
                Event::Copy => self.port.scene().clipboard_text.iter().for_each(|text| ctx.copy_text(text.clone())),
                // Auto-repeats of a held key must not confirm the question that its first press raised.
                Event::Key { key: Pressed::Q, pressed: true, repeat: true, modifiers, .. } if modifiers.command => {}
                Event::Key { key: Pressed::Q, pressed: true, modifiers, .. } if modifiers.command => {
                    self.port.send(UiCommand::Quit);
                }
                Event::Key { key, pressed, modifiers, .. } => self.on_key(ctx, key, pressed, modifiers),
                Event::WindowFocused(false) => {
                    if let Some(command) = self.keyboard.release_all(self.port.input_state()) {
                        self.port.send(command);
                    }
                }
                _ => {}
            }
        }
    }

    /// Handles a request to close the window. While other players are in the game, the first request asks for
    /// confirmation; a second one within [`QUIT_CONFIRM_TIMEOUT`] closes the window even if the game does not respond.
    fn on_close(&mut self, ctx: &egui::Context) {
        if ctx.input(|input| input.viewport().close_requested()) && self.needs_close_confirmation(Instant::now()) {
            ctx.send_viewport_cmd(ViewportCommand::CancelClose);
            self.port.send(UiCommand::Quit);
        }
    }

    /// Takes the newest scene. Returns `false` if there is no new one since the last call. If a scene needs
    /// confirmation again after one that did not, the user cancelled the question, and the next request to close asks
    /// again.
    fn refresh_scene(&mut self) -> bool {
        let needed_confirmation = self.port.scene().needs_quit_confirmation;
        let is_new = self.port.refresh_scene();
        if !needed_confirmation && self.port.scene().needs_quit_confirmation {
            self.close_confirmation_asked = None;
        }
        is_new
    }

    fn needs_close_confirmation(&mut self, now: Instant) -> bool {
        let was_asked = self
            .close_confirmation_asked
            .is_some_and(|asked_at| now.saturating_duration_since(asked_at) < QUIT_CONFIRM_TIMEOUT);
        let must_ask = self.port.scene().needs_quit_confirmation && !self.port.is_over() && !was_asked;
        self.close_confirmation_asked = must_ask.then_some(now);
        must_ask
    }

    fn on_key(&mut self, ctx: &egui::Context, pressed: Pressed, down: bool, modifiers: egui::Modifiers) {
        let Some(key) = to_key(pressed) else { return };
        if down && self.port.scene().chat_draft.is_some() {
            if let Some(command) = edit_command(key) {
                self.port.send(command);
            }
            return;
        }
        let is_menu_open = self.port.scene().overlay.as_ref().is_some_and(|overlay| overlay.selected.is_some());
        match self.keyboard.on_key(self.port.input_state(), key, down, modifiers.shift, is_menu_open) {
            Some(UiCommand::Fullscreen) => {
                let is_fullscreen = ctx.input(|input| input.viewport().fullscreen.unwrap_or(false));
                ctx.send_viewport_cmd(ViewportCommand::Fullscreen(!is_fullscreen));
            }
            Some(command) => self.port.send(command),
            None => {}
        }
    }

    fn load_textures(&mut self, ctx: &egui::Context) {
        let screens = &self.port.scene().screens;
        self.textures.truncate(screens.len());
        for (at, screen) in screens.iter().enumerate() {
            let image = egui::ColorImage::from_rgba_premultiplied([screen.width, screen.height], &screen.rgba);
            let options = if screen.is_smooth { TextureOptions::LINEAR } else { TextureOptions::NEAREST };
            match self.textures.get_mut(at) {
                Some(texture) => texture.set(image, options),
                None => self.textures.push(ctx.load_texture(format!("screen {at}"), image, options)),
            }
        }
    }
}

impl eframe::App for WindowFrontend {
    fn ui(&mut self, ui: &mut egui::Ui, _frame: &mut eframe::Frame) {
        let ctx = ui.ctx().clone();
        self.port.set_ready();
        self.on_events(&ctx);
        self.on_close(&ctx);
        if self.refresh_scene() {
            self.load_textures(&ctx);
        }
        let (scene, keys) = (self.port.scene(), &self.status_keys);
        paint::paint_scene(ui, scene, keys, &self.textures, self.scaling, |command| self.port.send(command));
        if self.port.is_over() && self.screenshot.poll_done(&ctx) {
            ctx.send_viewport_cmd(ViewportCommand::Close);
        }
    }

    fn clear_color(&self, _visuals: &egui::Visuals) -> [f32; 4] {
        let [red, green, blue] = BACKGROUND.map(|part| f32::from(part) / 255.0);
        [red, green, blue, 1.0]
    }
}

fn to_key(key: Pressed) -> Option<Key> {
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
    Key::from_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui_link::{GamePort, ui_link};

    /// Creates a front end without a real window, and the game's port to it.
    fn window() -> (WindowFrontend, GamePort) {
        let (game_port, port) = ui_link();
        let keyboard = Keyboard::new(&UserSettings::default());
        (
            WindowFrontend {
                port,
                keyboard,
                scaling: Scaling::Integer,
                status_keys: String::new(),
                textures: vec![],
                screenshot: Screenshot::new(None),
                close_confirmation_asked: None,
            },
            game_port,
        )
    }

    /// Passes events to the front end and returns the output of egui.
    fn run_events(window: &mut WindowFrontend, events: Vec<Event>) -> egui::FullOutput {
        window.refresh_scene();
        let input = egui::RawInput { events, ..Default::default() };
        let mut output = egui::Context::default().run_ui(input, |ui| window.on_events(ui.ctx()));
        output.textures_delta.clear();
        output
    }

    #[test]
    fn ctrl_c_copies_and_never_quits() {
        let (mut window, mut game_port) = window();
        game_port.show(|scene| scene.clipboard_text = Some("udp://a:1#x".into()));
        let output = run_events(&mut window, vec![Event::Copy]).platform_output.commands;
        assert!(matches!(&output[..], [egui::OutputCommand::CopyText(text)] if text == "udp://a:1#x"), "{output:?}");
        assert_eq!(game_port.poll_command(), None);
        // The lobby closes, and with it the text to copy disappears.
        game_port.show(|scene| scene.clipboard_text = None);
        let output = run_events(&mut window, vec![Event::Copy]).platform_output.commands;
        assert!(output.is_empty(), "{output:?}");
        assert_eq!(game_port.poll_command(), None, "Ctrl+C ended the game");
    }

    /// Requests to close the window. Returns whether the front end lets it close.
    fn request_close(window: &mut WindowFrontend) -> bool {
        window.refresh_scene();
        let mut input = egui::RawInput::default();
        let root = input.viewports.entry(egui::ViewportId::ROOT).or_default();
        root.events.push(egui::ViewportEvent::Close);
        let mut output = egui::Context::default().run_ui(input, |ui| window.on_close(ui.ctx()));
        output.textures_delta.clear();
        let root = &output.viewport_output[&egui::ViewportId::ROOT];
        !root.commands.contains(&ViewportCommand::CancelClose)
    }

    #[test]
    fn held_ctrl_q_requests_quit_once() {
        let (mut window, mut game_port) = window();
        let key = |pressed| Event::Key {
            key: Pressed::Q,
            physical_key: None,
            pressed,
            repeat: false,
            modifiers: egui::Modifiers::COMMAND,
        };
        // The context marks presses of a key that is already down as repeats.
        run_events(&mut window, vec![key(true), key(true), key(true)]);
        assert_eq!((game_port.poll_command(), game_port.poll_command()), (Some(UiCommand::Quit), None));
        run_events(&mut window, vec![key(true), key(false), key(true)]);
        assert_eq!(
            (game_port.poll_command(), game_port.poll_command()),
            (Some(UiCommand::Quit), Some(UiCommand::Quit))
        );
    }

    #[test]
    fn close_is_confirmed_again_after_cancelling() {
        let (mut window, mut game_port) = window();
        let mut show = |window: &mut WindowFrontend, must_ask| {
            game_port.show(|scene| scene.needs_quit_confirmation = must_ask);
            window.refresh_scene();
        };
        show(&mut window, true);
        assert!(!request_close(&mut window));
        // The question is shown, and the player cancels it with Esc.
        show(&mut window, false);
        show(&mut window, true);
        assert!(!request_close(&mut window), "the window closed without confirmation");
        show(&mut window, true);
        assert!(request_close(&mut window), "the window closes although the game does not respond");
    }

    #[test]
    fn close_is_confirmed_once_while_others_play() {
        let (mut window, mut game_port) = window();
        assert!(request_close(&mut window), "no other player in the game");
        game_port.show(|scene| scene.needs_quit_confirmation = true);
        assert!(!request_close(&mut window));
        assert_eq!(game_port.poll_command(), Some(UiCommand::Quit), "the game shows the question");
        assert!(request_close(&mut window), "the window closes although the game does not respond");
        assert!(!request_close(&mut window) && game_port.poll_command().is_some(), "the next request asks again");
        game_port.show(|scene| scene.needs_quit_confirmation = false);
        assert!(request_close(&mut window), "the question is already shown");
        game_port.show(|scene| scene.needs_quit_confirmation = true);
        window.port.refresh_scene();
        drop(game_port);
        assert!(request_close(&mut window), "the game is over");
    }

    #[test]
    fn every_default_key_exists_in_the_window() {
        let known: Vec<Key> = Pressed::ALL.iter().filter_map(|key| to_key(*key)).collect();
        let config = UserSettings::default();
        let all = config
            .player_keys
            .iter()
            .flatten()
            .map(|(_, keys)| keys)
            .chain(config.action_keys.iter().map(|(_, keys)| keys));
        for key in all.flatten() {
            assert!(known.contains(key), "{key:?}");
        }
    }

    #[test]
    fn missing_system_library_is_an_error_not_a_panic() {
        let why = run_catching_panics(|| panic!("Library libxkbcommon-x11.so\ncould not be loaded."))
            .map_err(|why| why.to_string());
        assert_eq!(why, Err("Library libxkbcommon-x11.so could not be loaded.".into()));
    }

    #[test]
    fn initial_window_size_fits_its_pictures() {
        let display = DisplayOptions { pictures: (1, 240, 4.0 / 3.0), ..DisplayOptions::default() };
        let [width, height] = initial_size(&display, 3);
        assert!(width >= 960.0 && height >= 720.0 + STATUS_HEIGHT);
    }
}
