//! The state of the machine as bytes: all data that determine the further course of the game, and nothing else.
//!
//! The state excludes data that only affect picture or sound output, the pressed buttons (set before every frame), the
//! debugger, data derived from state fields and data fixed by the cartridge and the region. So equal bytes mean an
//! equal future, before and after a load, and whether frames were rendered or not. For the bus, the PPU, the APU and
//! the input ports, all fields are listed, so that a new field in the emulator is a compile error until it is assigned
//! to the state or excluded.

use bincode::config::{Configuration, Fixint, LittleEndian};
use bincode::enc::write::Writer;
use bincode::error::EncodeError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tetanes_core::apu::Apu;
use tetanes_core::bus::Bus;
use tetanes_core::cpu::Cpu;
use tetanes_core::input::{Input, Joypad};
use tetanes_core::mapper::Mapper;
use tetanes_core::ppu::{self, Ppu};

/// Encoding of all fields: fixed-size integers, little endian.
const BINCODE_CONFIG: Configuration<LittleEndian, Fixint> = bincode::config::legacy();
/// Number of the last dot of a scanline.
const LAST_DOT: u16 = 340;
/// Exclusive upper bound on the master clock counters of CPU and PPU at the end of a frame. The actual values are a few
/// clocks.
const MAX_CLOCK_LEAD: u32 = 4_096;
/// Bits of the PPU's `mask_emphasis` that can be set.
const EMPHASIS_BITS: u16 = 0x1c0;
/// Exclusive upper bounds on the step number and on the cycle count of the APU frame counter.
const FRAME_COUNTER_LIMITS: (usize, u32) = (6, 50_000);
/// Smallest DMC period of any region: 50 cycles per bit, which the emulator stores as 49. Shorter periods would keep
/// the CPU from ever running.
const MIN_DMC_PERIOD: u16 = 49;

/// Defines encode, decode and swap functions for a structure. Each use lists the structure's state fields in the order
/// of the encoding, then its excluded fields.
macro_rules! state_fields {
    ($put:ident, $get:ident, $swap:ident, $type:ident { $($kept:ident),* $(,)? } but { $($left:ident),* $(,)? }) => {
        fn $put(out: &mut Vec<u8>, part: &$type) {
            let $type { $($kept,)* $($left: _,)* } = part;
            $(put(out, $kept);)*
        }

        fn $get(bytes: &mut &[u8], part: &mut $type) -> Option<()> {
            $(part.$kept = get(bytes)?;)*
            Some(())
        }

        fn $swap(one: &mut $type, other: &mut $type) {
            $(std::mem::swap(&mut one.$kept, &mut other.$kept);)*
        }
    };
}

state_fields!(put_ppu, get_ppu, swap_ppu, Ppu {
    master_clock, cycle, scanline, mask_rendering_enabled, mask_prev_rendering_enabled,
    mask_pending_rendering_update, ctrl_bg_select, ctrl_spr_select, ctrl_spr_height, status_spr_zero_hit,
    status_spr_overflow, status_in_vblank, ctrl_vram_increment, ctrl_master_slave, ctrl_nmi_enabled, scroll,
    tile_shift_lo, tile_shift_hi, tile_addr, tile_lo, tile_hi, open_bus, reset_signal, curr_palette, prev_palette,
    next_palette, is_visible_scanline, is_prerender_scanline, is_render_scanline, mask_emphasis, mask_grayscale,
    mask_bits, is_pal_spr_eval_scanline, spr_in_range, spr_zero_in_range, secondary_oamaddr, oam_eval_done,
    oamaddr_lo, oamaddr_hi, oam_fetch, oamaddr, spr_zero_visible, spr_count, overflow_count,
    secondary_oamdata, sprites, spr_cover, nmi_pending, vram_buffer, prevent_vbl,
} but {
    // Encoded separately; of the frame only its number.
    palette, oamdata, frame,
    // Picture output.
    color_bits_applied, skip_rendering,
    // Derived from state fields.
    mask_min_draw_bg_cycle, mask_min_draw_spr_cycle,
    // Constant.
    vblank_scanline, prerender_scanline, clock_divider, region, emulate_warmup,
});

state_fields!(put_apu, get_apu, swap_apu, Apu {
    master_clock, cpu_cycle, clock, mix_clock, frame_counter, pulse1, pulse2, triangle, noise, dmc, should_clock,
} but {
    // Sound output.
    mixed_level, mapper_level, audio_samples, filter_chain, synth, rate_dirty, skip_mixing,
    // Constant.
    sample_rate, speed, sample_ratio, clock_rate, region, mapper_enabled,
});

/// End offsets of the sections of an encoded state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SectionEnds {
    pub(super) cpu: usize,
    pub(super) ppu: usize,
    pub(super) palette: usize,
    pub(super) oam: usize,
    pub(super) apu: usize,
    pub(super) cartridge: usize,
    pub(super) pads: usize,
}

/// Appends the encoded state to `out`. Returns the ends of its sections, as offsets in `out`.
pub(super) fn encode(bus: &Bus, out: &mut Vec<u8>) -> SectionEnds {
    let Bus {
        cpu,
        ppu,
        apu,
        mapper,
        memory,
        input,
        wram,
        open_bus,
        // Derived from state fields.
        mapper_ops: _,
        // Constant.
        ram_state: _,
        region: _,
        patches: _,
        // Debugger state.
        debugger_active: _,
        debugger: _,
        pc_history: _,
        code_map: _,
        call_stack: _,
        breakpoints_active: _,
        breakpoints: _,
        instr_addr: _,
        access_hit: _,
        interrupt_taken: _,
    } = bus;
    let mut ends = SectionEnds::default();
    put(out, cpu);
    put(out, open_bus);
    ends.cpu = out.len();
    put(out, &ppu.frame.count);
    put_ppu(out, ppu);
    ends.ppu = out.len();
    put(out, &ppu.palette);
    ends.palette = out.len();
    put(out, &ppu.oamdata);
    ends.oam = out.len();
    put_apu(out, apu);
    ends.apu = out.len();
    put(out, mapper);
    ends.cartridge = out.len();
    put_shift_registers(out, input);
    ends.pads = out.len();
    out.extend_from_slice(&***wram);
    out.extend_from_slice(memory.ram());
    ends
}

/// A decoded state that is not in the machine yet; after a swap, the machine's previous state. The buffers are reused.
pub(super) struct StagedState {
    cpu: Cpu,
    open_bus: u8,
    frame: u32,
    ppu: Ppu,
    apu: Apu,
    mapper: Mapper,
    shift_registers: [(u8, bool); 6],
    wram: Vec<u8>,
    ram: Vec<u8>,
}

impl StagedState {
    pub(super) fn new(bus: &Bus) -> Self {
        Self {
            cpu: bus.cpu.clone(),
            open_bus: bus.open_bus,
            frame: bus.ppu.frame.count,
            ppu: bus.ppu.clone(),
            apu: bus.apu.clone(),
            mapper: bus.mapper.clone(),
            shift_registers: Default::default(),
            wram: bus.wram().to_vec(),
            ram: bus.memory.ram().to_vec(),
        }
    }

    /// Decodes the bytes of a state into this value. Returns `None` if the bytes cannot be a state of this cartridge.
    pub(super) fn decode(&mut self, mut bytes: &[u8], bus: &Bus) -> Option<()> {
        let bytes = &mut bytes;
        self.cpu = get(bytes)?;
        self.open_bus = get(bytes)?;
        self.frame = get(bytes)?;
        get_ppu(bytes, &mut self.ppu)?;
        self.ppu.palette = get(bytes)?;
        self.ppu.oamdata = get(bytes)?;
        get_apu(bytes, &mut self.apu)?;
        // The table of the frame counter follows from the region.
        self.apu.frame_counter.set_region(bus.region);
        self.mapper = get(bytes)?;
        for shift in &mut self.shift_registers {
            *shift = get(bytes)?;
        }
        let (wram, ram) = bytes.split_at_checked(self.wram.len())?;
        self.wram.copy_from_slice(wram);
        if ram.len() != self.ram.len() {
            return None;
        }
        self.ram.copy_from_slice(ram);
        self.is_plausible(bus).then_some(())
    }

    /// Returns whether the machine could be in this state at the end of a frame. The check does not find every forged
    /// state, but it finds those that would make the emulator run forever.
    fn is_plausible(&self, bus: &Bus) -> bool {
        let Self { cpu, ppu, apu, .. } = self;
        let processor = (cpu.start_cycles, cpu.end_cycles) == (bus.cpu.start_cycles, bus.cpu.end_cycles)
            && cpu.master_clock < MAX_CLOCK_LEAD
            && ppu.master_clock < MAX_CLOCK_LEAD;
        let picture = ppu.cycle <= LAST_DOT
            && ppu.scanline <= bus.ppu.prerender_scanline
            && ppu.mask_emphasis & !EMPHASIS_BITS == 0;
        let clocks = [apu.clock, apu.mix_clock].iter().all(|clock| *clock <= apu.master_clock);
        let timers = [&apu.pulse1.timer, &apu.pulse2.timer, &apu.triangle.timer, &apu.noise.timer, &apu.dmc.timer];
        let sound = clocks
            && apu.master_clock < Apu::CYCLE_SIZE - 1
            && timers.iter().all(|timer| timer.cycle < Apu::CYCLE_SIZE)
            && apu.frame_counter.step < FRAME_COUNTER_LIMITS.0
            && apu.frame_counter.cycle < FRAME_COUNTER_LIMITS.1
            && apu.dmc.timer.period >= MIN_DMC_PERIOD;
        let cartridge = std::mem::discriminant(&self.mapper) == std::mem::discriminant(&bus.mapper);
        processor && picture && sound && cartridge
    }

    /// Swaps this state with the machine's state.
    pub(super) fn swap(&mut self, bus: &mut Bus) {
        std::mem::swap(&mut self.cpu, &mut bus.cpu);
        std::mem::swap(&mut self.open_bus, &mut bus.open_bus);
        std::mem::swap(&mut self.frame, &mut bus.ppu.frame.count);
        swap_ppu(&mut self.ppu, &mut bus.ppu);
        std::mem::swap(&mut self.ppu.palette, &mut bus.ppu.palette);
        std::mem::swap(&mut self.ppu.oamdata, &mut bus.ppu.oamdata);
        swap_apu(&mut self.apu, &mut bus.apu);
        std::mem::swap(&mut self.mapper, &mut bus.mapper);
        for (shift, pad) in self.shift_registers.iter_mut().zip(shift_registers_mut(&mut bus.input)) {
            std::mem::swap(&mut shift.0, &mut pad.index);
            std::mem::swap(&mut shift.1, &mut pad.strobe);
        }
        self.wram.swap_with_slice(bus.wram_mut());
        self.ram.swap_with_slice(bus.memory.ram_mut());
        bus.ppu.update_draw_thresholds();
        // Colour bits are applied up to the current pixel: to the whole picture, unless the frame ends on a visible
        // scanline.
        bus.ppu.color_bits_applied = if bus.ppu.scanline < ppu::size::HEIGHT { 0 } else { ppu::size::FRAME };
    }
}

/// Encodes only the read position and the strobe bit of each pad: buttons are set before every frame, and the
/// plugged-in devices never change.
fn put_shift_registers(out: &mut Vec<u8>, input: &Input) {
    let Input { joypads, signatures, zapper: _, turbo_timer: _, four_player: _ } = input;
    for pad in joypads.iter().chain(signatures) {
        put(out, &(pad.index, pad.strobe));
    }
}

fn shift_registers_mut(input: &mut Input) -> impl Iterator<Item = &mut Joypad> {
    input.joypads.iter_mut().chain(&mut input.signatures)
}

struct VecWriter<'a>(&'a mut Vec<u8>);

impl Writer for VecWriter<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

pub(super) fn put<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    bincode::serde::encode_into_writer(value, VecWriter(out), BINCODE_CONFIG).expect("writing to a vector cannot fail");
}

fn get<T: DeserializeOwned>(bytes: &mut &[u8]) -> Option<T> {
    let (value, used) = bincode::serde::decode_from_slice(bytes, BINCODE_CONFIG).ok()?;
    *bytes = &bytes[used..];
    Some(value)
}
