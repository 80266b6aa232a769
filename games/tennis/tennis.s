; Tennis for Two, for the NES: a bow to William Higinbotham, who in 1958 let people play tennis on an oscilloscope.
;
; One translation unit; the parts are included below, each with its own subject. The frame goes like this: the interrupt
; at the start of the vertical blank shows what the last frame prepared (sprites, a few tiles, palette, scroll), then the
; main loop reads the pads, moves the game on by one frame, and prepares what is shown next. Nothing but the pads
; comes in from outside, so equal buttons give equal games.

.linecont +
.include "const.inc"
.include "ram.inc"

; NES 2.0: mapper 0, 16 KiB and 8 KiB, nametables side by side, and a Four Score among the things it likes.
.segment "HEADER"
    .byte "NES", $1A, 1, 1, %00000001, %00001000, 0, 0, 0, 0, 0, 0, 0, 2

.segment "CODE"

.proc reset
    sei
    cld
    ldx #$40
    stx PAD_PORT2           ; no interrupts from the sound unit
    ldx #$FF
    txs
    inx
    stx PPU_CTRL
    stx PPU_MASK
    stx DMC
    stx SOUND_ON
    bit PPU_STATUS
:   bit PPU_STATUS
    bpl :-
    txa
@clear:
    sta $0000, x
    sta $0100, x
    sta $0300, x
    sta $0400, x
    sta $0500, x
    sta $0600, x
    sta $0700, x
    inx
    bne @clear
    jsr hide_sprites
:   bit PPU_STATUS
    bpl :-
    lda #$58
    sta seed                ; any constant but 0
    lda #$19
    sta seed+1
    lda #MODE_TWO
    sta cursor
    jsr sound_init
    jsr title_begin
.endproc

.proc main
    lda #1
    sta ready
:   lda ready
    bne :-                  ; until the interrupt has shown it
    inc frame
    jsr read_pads
    jsr stir
    jsr run_state
    jsr run_jobs
    jsr run_effects
    jsr sound_frame
    jmp main
.endproc

; Moves the game on by a frame.
.proc run_state
    inc timer
    bne :+
    inc timer_hi
:   lda state
    asl
    tax
    lda states, x
    sta ptr
    lda states+1, x
    sta ptr+1
    jmp (ptr)
states:
    .addr title_frame, match_frame, match_frame, match_frame, match_frame, match_frame
.endproc

; Enters state A.
.proc set_state
    sta state
    lda #0
    sta timer
    sta timer_hi
    rts
.endproc

; The start of the vertical blank.
.proc nmi
    pha
    txa
    pha
    tya
    pha
    lda ready
    bne @show
    lda lag                 ; the frame is not ready: count it, and show the last one again
    cmp #$FF
    beq @scroll
    inc lag
    jmp @scroll
@show:
    lda #0
    sta OAM_ADDR
    lda #>OAM
    sta OAM_DMA
    jsr flush_vram
    lda #0
    sta ready
@scroll:
    bit PPU_STATUS
    lda scroll_x
    sta PPU_SCROLL
    lda scroll_y
    sta PPU_SCROLL
    lda #CTRL_ON
    sta PPU_CTRL
    lda #MASK_ON
    sta PPU_MASK
    pla
    tay
    pla
    tax
    pla
    rti
.endproc

.proc irq
    rti
.endproc

.include "pads.s"
.include "math.s"
.include "screen.s"
.include "field.s"
.include "effects.s"
.include "title.s"
.include "match.s"
.include "score.s"
.include "board.s"
.include "ball.s"
.include "player.s"
.include "shot.s"
.include "computer.s"
.include "draw.s"
.include "sound.s"
.include "music.s"

.segment "VECTORS"
    .addr nmi, reset, irq

.include "pictures.inc"

.segment "CHR0"
.include "scenery.inc"
.include "font.inc"
.include "bigfont.inc"

.segment "CHR1"
.include "sprites.inc"
