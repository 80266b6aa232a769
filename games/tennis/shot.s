; A shot: where the ball goes, and how fast.
;
; Each kind of shot has a depth behind the net and a time of flight; the pad and the timing change them. What then happens at the net is
; left to gravity: a fast ball that is hit low goes into it.

.segment "CODE"

DEEPER       = 16           ; with the pad towards the other side
SHORTER      = 34           ; and away from it
DEPTH_MIN    = 14
DEPTH_MAX    = 114
SAFE_DEPTH   = 50           ; what lands before this is never hit faster
LOB_FLIGHT   = 86
DRIVE_FLIGHT = 45

; Player X hits the ball, `offset` away from the best place.
.proc shot
    stx who
    lda pads, x
    sta aim
    ldy swing, x
    lda shot_flight, y
    sta flight
    lda shot_depth, y
    sta depth
    cpy #SWING_DRIVE
    bne @aimed
    lda aim
    and #BUTTON_UP
    beq :+
    lda #LOB_FLIGHT
    sta flight
:   lda aim
    and #BUTTON_DOWN
    beq @aimed
    lda #DRIVE_FLIGHT
    sta flight
@aimed:
    jsr aim_depth
    jsr timing
    jsr clamp_depth
    jsr speed_up
    ldx who
    lda #0
    ldy swing, x
    cpy #SWING_SLICE
    bne :+
    lda #1
:   sta spin
    lda #0
    cpy #SWING_SERVE
    bcc :+
    lda #1
:   sta serving
    jsr shot_effects
    lda #0
    sta bounces
    sta net_touch
    lda who
    and #1
    tay
    eor #1
    sta turn
    jsr launch_over
    lda #STATE_RALLY
    jsr set_state
    lda jobs
    ora #JOB_RALLY
    sta jobs
    jsr foresee
    jmp roll_all
.endproc

; Left and right make the shot longer or shorter.
.proc aim_depth
    lda who
    and #1
    tay
    lda aim
    and forward, y
    beq :+
    lda depth
    clc
    adc #DEEPER
    sta depth
:   lda aim
    and backward, y
    beq :+
    lda depth
    sec
    sbc #SHORTER
    bcs @short
    lda #DEPTH_MIN          ; a slice is short already
@short:
    sta depth
:   rts
.endproc

; Too early makes it long, too late makes it short and slow (a high ball that begs for a smash), just right makes it fast.
; `offset` says which: positive is too early.
.proc timing
    lda #0
    sta perfect
    lda offset
    bpl :+
    eor #$FF
    clc
    adc #1
:   cmp #PERFECT + 1
    bcc @perfect
    bit offset
    bmi :+
    lsr
    lsr
:   clc
    adc flight
    sta flight
    jsr random
    and #15
    sec
    sbc #8
    clc
    adc depth
    clc
    adc offset
    sta depth
    lda offset              ; and half as much again
    cmp #$80
    ror
    clc
    adc depth
    sta depth
    rts
@perfect:
    inc perfect
    lda depth
    cmp #SAFE_DEPTH
    bcc @done               ; a short ball would only find the net
    lda flight
    lsr
    lsr
    lsr
    sta t0
    lda flight
    sec
    sbc t0
    sta flight
@done:
    rts
.endproc

; Keeps the depth in bounds. What seems to be far too much is less than nothing.
.proc clamp_depth
    lda depth
    cmp #200
    bcs @least
    cmp #DEPTH_MIN
    bcs :+
@least:
    lda #DEPTH_MIN
:   cmp #DEPTH_MAX
    bcc :+
    lda #DEPTH_MAX
:   sta depth
    rts
.endproc

; The longer the rally, the faster time goes for the ball: gravity grows, and the flight takes less in the same curve.
.proc speed_up
    lda rally
    cmp #99
    bcs :+
    inc rally
:   ldx rally
    dex
    cpx #LEVELS
    bcc :+
    ldx #LEVELS - 1
:   lda level_gravity, x
    sta gravity
    lda flight
    sta num
    lda level_flight, x
    jsr multiply
    sta flight
    rts
.endproc

; What is heard and seen of it.
.proc shot_effects
    ldy #SOUND_HIT
    lda perfect
    beq :+
    jsr spark
    ldy #SOUND_PERFECT
:   ldx who
    lda swing, x
    cmp #SWING_SMASH
    beq @smash
    cmp #SWING_POWER
    bne @sound
@smash:
    ldy #SOUND_SMASH
    lda #6
    sta shake
    lda perfect
    beq @sound
    lda #3
    sta flash
@sound:
    tya
    jmp sound_start
.endproc

; Where a computer player meets the ball: twelve frames behind the bounce.
.proc foresee
    lda ball_vx
    asl
    sta num
    lda ball_vx+1
    rol
    sta t0                  ; times 2
    lda num
    asl
    sta num
    lda t0
    rol
    sta num+1               ; times 4
    lda num
    asl
    sta t0
    lda num+1
    rol
    sta t1                  ; times 8
    lda spin
    bne @sliced
    clc
    lda num
    adc t0
    lda num+1
    adc t1
    jmp @add
@sliced:
    lda num+1
@add:
    clc
    adc land_x
    bit ball_vx+1
    bmi @left
    bcs @beyond
    cmp #RIGHT_MAX
    bcc @store
@beyond:
    lda #RIGHT_MAX
    bne @store              ; always
@left:
    bcc @before
    cmp #LEFT_MIN
    bcs @store
@before:
    lda #LEFT_MIN
@store:
    sta ai_x
    rts
.endproc

.segment "BSS"
perfect:    .res 1

.segment "RODATA"

; By the kind of swing: none, drive, smash, slice, serve, power serve.
shot_flight:
    .byte 0, 55, 30, 68, 54, 37
shot_depth:
    .byte 0, 74, 76, 32, 56, 60

forward:
    .byte BUTTON_RIGHT, BUTTON_LEFT
backward:
    .byte BUTTON_LEFT, BUTTON_RIGHT

; The flight in 256ths is the square root of 20 / gravity.
LEVELS = 12
first_gravity:
level_gravity:
    .byte 20, 26, 32, 38, 44, 50, 56, 62, 68, 75, 82, 90
level_flight:
    .byte 255, 225, 202, 186, 173, 162, 153, 145, 139, 132, 126, 121
