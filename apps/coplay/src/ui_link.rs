//! Between a game and whoever shows it: scenes go one way, commands and pressed buttons the other.
//!
//! The game runs on a thread of its own and never waits for the front end: a scene is handed over by swapping two buffers, and where the front
//! end has its hands on them just then, the scene is left out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use crate::input_state::InputState;
use crate::scene::{Scene, UiCommand};

/// Commands that may wait; a person does not give more in a frame.
const COMMAND_QUEUE_LEN: usize = 64;

#[derive(Debug, Default)]
struct LinkState {
    scene: Mutex<(Scene, bool)>,
    is_over: AtomicBool,
    waker_thread: OnceLock<Thread>,
    /// The front end can show something, or never will.
    is_ready: Mutex<bool>,
    ready_changed: Condvar,
}

/// The game's end.
#[derive(Debug)]
pub struct GamePort {
    shared: Arc<LinkState>,
    input_state: Arc<InputState>,
    commands: Receiver<UiCommand>,
    back_buffer: Scene,
    scene_count: u64,
}

/// The front end's end.
#[derive(Debug)]
pub struct FrontendPort {
    shared: Arc<LinkState>,
    input_state: Arc<InputState>,
    commands: SyncSender<UiCommand>,
    front_buffer: Scene,
}

/// A stage and the view of it.
pub fn ui_link() -> (GamePort, FrontendPort) {
    let (sender, receiver) = sync_channel(COMMAND_QUEUE_LEN);
    let (shared, hands) = (Arc::new(LinkState::default()), Arc::new(InputState::default()));
    let stage = GamePort {
        shared: shared.clone(),
        input_state: hands.clone(),
        commands: receiver,
        back_buffer: Scene::default(),
        scene_count: 0,
    };
    (stage, FrontendPort { shared, input_state: hands, commands: sender, front_buffer: Scene::default() })
}

impl GamePort {
    /// Waits until somebody can see it: windows take their time to open.
    pub fn wait_until_ready(&self) {
        let ready = self.shared.is_ready.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = self.shared.ready_changed.wait_while(ready, |ready| !*ready);
        drop(ready.unwrap_or_else(PoisonError::into_inner));
    }

    /// What is pressed.
    pub fn input_state(&self) -> &Arc<InputState> {
        &self.input_state
    }

    /// What somebody wants. When there is nobody to see it any more, or a signal asks for it, that is to end.
    pub fn poll_command(&mut self) -> Option<UiCommand> {
        match self.commands.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Disconnected) => Some(UiCommand::Exit),
            Err(TryRecvError::Empty) => crate::signals::is_stop_requested().then_some(UiCommand::Exit),
        }
    }

    /// Shows a scene. `draw` gets one that was shown before, and sets all of it anew.
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
    /// The game can begin.
    pub fn set_ready(&self) {
        *self.shared.is_ready.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.ready_changed.notify_all();
    }

    /// Takes the newest scene over; `false` if there is none since the last.
    pub fn refresh_scene(&mut self) -> bool {
        let mut shared = self.shared.scene.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::take(&mut shared.1) {
            return false;
        }
        std::mem::swap(&mut shared.0, &mut self.front_buffer);
        true
    }

    /// The scene that was taken over last.
    pub fn scene(&self) -> &Scene {
        &self.front_buffer
    }

    /// Whether the game is over.
    pub fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Acquire)
    }

    /// Says whether the game is over, for a thread of its own.
    pub fn over_probe(&self) -> impl Fn() -> bool + Send + 'static {
        let shared = self.shared.clone();
        move || shared.is_over.load(Ordering::Acquire)
    }

    /// Where to press.
    pub fn input_state(&self) -> &Arc<InputState> {
        &self.input_state
    }

    /// Asks for something. What comes when too much waits is left out.
    pub fn send(&self, command: UiCommand) {
        _ = self.commands.try_send(command);
    }

    /// This thread is unparked when there is something new.
    pub fn set_waker(&self, thread: Thread) {
        _ = self.shared.waker_thread.set(thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_scene_is_taken_once() {
        let (mut stage, mut view) = ui_link();
        assert!(!view.refresh_scene());
        for text in ["one", "two", "three"] {
            stage.show(|scene| scene.status = text.into());
        }
        assert!(view.refresh_scene() && !view.refresh_scene());
        assert_eq!((view.scene().status.as_str(), view.scene().sequence), ("three", 3));
        assert!(!view.is_over());
        drop(stage);
        assert!(view.is_over());
    }

    #[test]
    fn game_waits_for_a_ready_or_dropped_frontend() {
        for gone in [false, true] {
            let (stage, view) = ui_link();
            let waiting = std::thread::spawn(move || stage.wait_until_ready());
            assert!(!waiting.is_finished());
            if gone {
                drop(view)
            } else {
                view.set_ready()
            }
            waiting.join().unwrap();
        }
    }

    #[test]
    fn commands_arrive_and_a_dropped_frontend_ends_the_game() {
        let (mut stage, view) = ui_link();
        view.send(UiCommand::Pause);
        assert_eq!((stage.poll_command(), stage.poll_command()), (Some(UiCommand::Pause), None));
        (0..1_000).for_each(|_| view.send(UiCommand::Mute));
        assert_eq!(std::iter::from_fn(|| stage.poll_command()).count(), COMMAND_QUEUE_LEN);
        drop(view);
        assert_eq!(stage.poll_command(), Some(UiCommand::Exit));
    }
}
