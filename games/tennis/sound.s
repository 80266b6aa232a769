; Sounds: short lists of steps, on the second pulse channel and on the noise. While one lasts, the music leaves its channel alone.

.segment "CODE"

.proc sound_init
    lda #%00001111
    sta SOUND_ON
    lda #$30                ; silence
    sta PULSE1
    sta PULSE2
    sta NOISE
    lda #$08                ; no sweeps
    sta PULSE1+1
    sta PULSE2+1
    lda #$80
    sta TRIANGLE
    lda #0
    sta TRIANGLE+3
    sta NOISE+3
    rts
.endproc

; Starts sound A. Keeps X and Y.
.proc sound_start
    sta sound_t
    txa
    pha
    tya
    pha
    lda demo
    bne @quiet              ; a demonstration is silent
    lda sound_t
    asl
    asl
    tax
    lda sound_table+1, x
    beq @noise
    sta pulse_ptr+1
    lda sound_table, x
    sta pulse_ptr
    lda #1
    sta pulse_t
    lda #$FF
    sta pulse_high
@noise:
    lda sound_table+3, x
    beq @quiet
    sta noise_ptr+1
    lda sound_table+2, x
    sta noise_ptr
    lda #1
    sta noise_t
@quiet:
    pla
    tay
    pla
    tax
    rts
.endproc

; One frame of sound and music.
.proc sound_frame
    lda paused
    bne :+
    jsr music_frame
:   lda pulse_t
    beq @noise
    dec pulse_t
    bne @noise
    ldy #0
    lda (pulse_ptr), y
    sta pulse_t
    beq @pulse_end
    iny
    lda (pulse_ptr), y
    sta PULSE2
    iny
    lda (pulse_ptr), y
    sta PULSE2+2
    iny
    lda (pulse_ptr), y
    cmp pulse_high          ; writing the high byte clicks
    beq :+
    sta pulse_high
    sta PULSE2+3
:   lda pulse_ptr
    clc
    adc #4
    sta pulse_ptr
    bcc @noise
    inc pulse_ptr+1
    bne @noise              ; always
@pulse_end:
    lda #$30
    sta PULSE2
@noise:
    lda noise_t
    beq @done
    dec noise_t
    bne @done
    ldy #0
    lda (noise_ptr), y
    sta noise_t
    beq @noise_end
    iny
    lda (noise_ptr), y
    sta NOISE
    iny
    lda (noise_ptr), y
    sta NOISE+2
    lda noise_ptr
    clc
    adc #3
    sta noise_ptr
    bcc @done
    inc noise_ptr+1
@done:
    rts
@noise_end:
    lda #$30
    sta NOISE
    rts
.endproc

.segment "ZEROPAGE"
pulse_ptr:  .res 2
noise_ptr:  .res 2
sound_t:    .res 1
pulse_t:    .res 1          ; frames left of this step; 0: no sound
noise_t:    .res 1
pulse_high: .res 1

.segment "RODATA"

; A step of the pulse: frames, loudness, period. A step of the noise: frames, loudness, period.
.macro pulse frames, duty, loudness, period
    .byte frames, (duty << 6) | $30 | loudness, <(period), >(period)
.endmacro
.macro noise frames, loudness, period
    .byte frames, $30 | loudness, period
.endmacro

SOUND_HIT     = 0
SOUND_PERFECT = 1
SOUND_SMASH   = 2
SOUND_BOUNCE  = 3
SOUND_NET     = 4
SOUND_TOSS    = 5
SOUND_FAULT   = 6
SOUND_CROWD   = 7
SOUND_GAME    = 8
SOUND_MENU    = 9
SOUND_CHOSEN  = 10
SOUND_SWING   = 11

sound_table:                ; pulse and noise, 0 for none
    .addr hit_pulse, hit_noise
    .addr perfect_pulse, hit_noise
    .addr smash_pulse, smash_noise
    .addr bounce_pulse, 0
    .addr net_pulse, net_noise
    .addr toss_pulse, 0
    .addr fault_pulse, 0
    .addr 0, crowd_noise
    .addr game_pulse, crowd_noise
    .addr menu_pulse, 0
    .addr chosen_pulse, 0
    .addr 0, swing_noise

hit_pulse:
    pulse 1, 2, 12, $0A0
    pulse 2, 2, 9, $0C0
    pulse 3, 2, 4, $0D8
    .byte 0
hit_noise:
    noise 1, 9, 4
    noise 2, 4, 6
    .byte 0
perfect_pulse:
    pulse 2, 2, 12, $070
    pulse 2, 2, 12, $054
    pulse 3, 2, 9, $046
    pulse 4, 2, 5, $046
    pulse 5, 2, 2, $046
    .byte 0
smash_pulse:
    pulse 1, 1, 13, $060
    pulse 2, 1, 12, $0A0
    pulse 2, 1, 10, $110
    pulse 3, 1, 7, $1A0
    pulse 4, 1, 4, $280
    .byte 0
smash_noise:
    noise 2, 14, 5
    noise 3, 10, 7
    noise 4, 6, 9
    noise 6, 3, 10
    .byte 0
bounce_pulse:
    pulse 2, 2, 9, $1D0
    pulse 2, 2, 6, $260
    pulse 3, 2, 3, $320
    .byte 0
net_pulse:
    pulse 2, 0, 10, $4A0
    pulse 3, 0, 7, $520
    pulse 4, 0, 4, $5C0
    .byte 0
net_noise:
    noise 2, 9, 9
    noise 4, 6, 11
    noise 6, 3, 12
    .byte 0
toss_pulse:
    pulse 2, 2, 4, $200
    pulse 2, 2, 4, $1C0
    pulse 2, 2, 3, $180
    pulse 2, 2, 2, $150
    .byte 0
fault_pulse:
    pulse 8, 1, 8, $2F9
    pulse 2, 1, 0, $2F9
    pulse 14, 1, 8, $3F8
    pulse 6, 1, 4, $3F8
    .byte 0
crowd_noise:
    noise 4, 2, 7
    noise 4, 4, 6
    noise 5, 6, 5
    noise 6, 8, 6
    noise 5, 7, 5
    noise 7, 9, 6
    noise 6, 8, 5
    noise 8, 7, 6
    noise 8, 6, 5
    noise 9, 5, 6
    noise 9, 4, 7
    noise 10, 3, 6
    noise 12, 2, 7
    noise 14, 1, 8
    .byte 0
game_pulse:
    pulse 7, 1, 9, $0D5
    pulse 7, 1, 9, $0A9
    pulse 7, 1, 9, $08E
    pulse 10, 1, 10, $06A
    pulse 6, 1, 6, $06A
    pulse 6, 1, 3, $06A
    .byte 0
menu_pulse:
    pulse 2, 2, 7, $0BE
    pulse 3, 2, 4, $08E
    .byte 0
chosen_pulse:
    pulse 3, 2, 9, $0D5
    pulse 3, 2, 9, $08E
    pulse 6, 2, 7, $06A
    pulse 6, 2, 3, $06A
    .byte 0
swing_noise:
    noise 2, 1, 3
    noise 3, 2, 2
    .byte 0
