//! Link between a game and its front end: scenes go one way, commands and pressed buttons the other.
//!
//! The game runs on a thread of its own. Once the front end is ready, the game never waits for it. The game hands over
//! a scene by swapping two buffers. If the front end holds the lock at that moment, the scene is skipped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use crate::input_state::InputState;
use crate::scene::{Scene, UiCommand};

/// Largest number of commands that wait for the game; further ones are discarded. A person gives fewer in a frame.
const COMMAND_QUEUE_LEN: usize = 64;

#[derive(Debug, Default)]
struct LinkState {
    scene: Mutex<(Scene, bool)>,
    is_over: AtomicBool,
    waker_thread: OnceLock<Thread>,
    /// Whether the front end is ready to show scenes, or is gone. In both cases the game may start.
    is_ready: Mutex<bool>,
    ready_changed: Condvar,
}

/// Game's end of the link: sends scenes, receives commands.
#[derive(Debug)]
pub struct GamePort {
    shared: Arc<LinkState>,
    input_state: Arc<InputState>,
    commands: Receiver<UiCommand>,
    back_buffer: Scene,
    scene_count: u64,
}

/// Front end's end of the link: receives scenes, sends commands.
#[derive(Debug)]
pub struct FrontendPort {
    shared: Arc<LinkState>,
    input_state: Arc<InputState>,
    commands: SyncSender<UiCommand>,
    front_buffer: Scene,
}

/// Creates a link and returns its two ends.
pub fn ui_link() -> (GamePort, FrontendPort) {
    let (sender, receiver) = sync_channel(COMMAND_QUEUE_LEN);
    let (shared, input_state) = (Arc::new(LinkState::default()), Arc::new(InputState::default()));
    let game = GamePort {
        shared: shared.clone(),
        input_state: input_state.clone(),
        commands: receiver,
        back_buffer: Scene::default(),
        scene_count: 0,
    };
    (game, FrontendPort { shared, input_state, commands: sender, front_buffer: Scene::default() })
}

impl GamePort {
    /// Waits until the front end is ready to show scenes, or is gone. A window takes time to open.
    pub fn wait_until_ready(&self) {
        let ready = self.shared.is_ready.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = self.shared.ready_changed.wait_while(ready, |ready| !*ready);
        drop(ready.unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the pressed buttons, which the front end and the gamepads write.
    pub fn input_state(&self) -> &Arc<InputState> {
        &self.input_state
    }

    /// Returns the next command; `None` if none waits. Once no command waits and the front end is gone or a signal
    /// asked the program to end, returns [`UiCommand::Exit`] on every call.
    pub fn poll_command(&mut self) -> Option<UiCommand> {
        match self.commands.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Disconnected) => Some(UiCommand::Exit),
            Err(TryRecvError::Empty) => crate::signals::is_stop_requested().then_some(UiCommand::Exit),
        }
    }

    /// Shows a scene, unless the front end is just taking one. `draw` gets an old scene, and must set all of its
    /// fields.
    pub fn show(&mut self, draw: impl FnOnce(&mut Scene)) {
        draw(&mut self.back_buffer);
        self.scene_count += 1;
        self.back_buffer.sequence = self.scene_count;
        if let Ok(mut shared) = self.shared.scene.try_lock() {
            std::mem::swap(&mut shared.0, &mut self.back_buffer);
            shared.1 = true;
        }
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = self.shared.waker_thread.get() {
            thread.unpark();
        }
    }
}

impl Drop for GamePort {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.wake();
    }
}

impl Drop for FrontendPort {
    fn drop(&mut self) {
        self.set_ready();
    }
}

impl FrontendPort {
    /// Reports that the front end can show scenes, which lets the game start.
    pub fn set_ready(&self) {
        *self.shared.is_ready.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.ready_changed.notify_all();
    }

    /// Takes the newest scene; returns `false` if there is no new one.
    pub fn refresh_scene(&mut self) -> bool {
        let mut shared = self.shared.scene.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::take(&mut shared.1) {
            return false;
        }
        std::mem::swap(&mut shared.0, &mut self.front_buffer);
        true
    }

    /// Returns the scene that [`refresh_scene`](Self::refresh_scene) took last.
    pub fn scene(&self) -> &Scene {
        &self.front_buffer
    }

    /// Returns whether the game has dropped its end of the link.
    pub fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Acquire)
    }

    /// Returns a function that tests whether the game is over, for use on any thread.
    pub fn over_probe(&self) -> impl Fn() -> bool + Send + 'static {
        let shared = self.shared.clone();
        move || shared.is_over.load(Ordering::Acquire)
    }

    /// Returns the input state into which the front end writes pressed buttons.
    pub fn input_state(&self) -> &Arc<InputState> {
        &self.input_state
    }

    /// Sends a command to the game. It is discarded if 64 commands already wait.
    pub fn send(&self, command: UiCommand) {
        _ = self.commands.try_send(command);
    }

    /// Sets the thread that is unparked for every new scene, and at the end of the game. Only the first call has an
    /// effect.
    pub fn set_waker(&self, thread: Thread) {
        _ = self.shared.waker_thread.set(thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_scene_is_taken_once() {
        let (mut game, mut frontend) = ui_link();
        assert!(!frontend.refresh_scene());
        for text in ["one", "two", "three"] {
            game.show(|scene| scene.status = text.into());
        }
        assert!(frontend.refresh_scene() && !frontend.refresh_scene());
        assert_eq!((frontend.scene().status.as_str(), frontend.scene().sequence), ("three", 3));
        assert!(!frontend.is_over());
        drop(game);
        assert!(frontend.is_over());
    }

    #[test]
    fn game_waits_for_a_ready_or_dropped_frontend() {
        for gone in [false, true] {
            let (game, frontend) = ui_link();
            let waiting = std::thread::spawn(move || game.wait_until_ready());
            assert!(!waiting.is_finished());
            if gone {
                drop(frontend)
            } else {
                frontend.set_ready()
            }
            waiting.join().unwrap();
        }
    }

    #[test]
    fn commands_arrive_and_a_dropped_frontend_ends_the_game() {
        let (mut game, frontend) = ui_link();
        frontend.send(UiCommand::Pause);
        assert_eq!((game.poll_command(), game.poll_command()), (Some(UiCommand::Pause), None));
        (0..1_000).for_each(|_| frontend.send(UiCommand::Mute));
        assert_eq!(std::iter::from_fn(|| game.poll_command()).count(), COMMAND_QUEUE_LEN);
        drop(frontend);
        assert_eq!(game.poll_command(), Some(UiCommand::Exit));
    }
}
