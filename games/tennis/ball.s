; The ball: how it flies, how it bounces, and how a flight is chosen.

.segment "CODE"

; At rest on the ground in the middle of nowhere.
.proc reset_ball
    lda #0
    ldx #7
:   sta ball_x, x           ; position and speed
    dex
    bpl :-
    sta bounces
    sta net_touch
    sta spin
    sta serving
    sta ball_gone
    ldx #63
:   sta trail_h, x
    sta trail_x, x          ; 0: no point of the trail
    dex
    bpl :-
    rts
.endproc

; One frame of flight.
.proc move_ball
    lda ball_x+1
    sta last_x
    sec
    lda ball_vh
    sbc gravity
    sta ball_vh
    lda ball_vh+1
    sbc #0
    sta ball_vh+1
    clc
    lda ball_h
    adc ball_vh
    sta ball_h
    lda ball_h+1
    adc ball_vh+1
    sta ball_h+1
    clc
    lda ball_x
    adc ball_vx
    sta ball_x
    lda ball_x+1
    adc ball_vx+1
    sta ball_x+1
    rts
.endproc

; Keeps where the ball is for the trail.
.proc remember_ball
    ldx trail_i
    inx
    txa
    and #63
    sta trail_i
    tax
    lda ball_x+1
    sta trail_x, x
    lda ball_h+1
    sta trail_h, x
    rts
.endproc

; Bounces the ball if it has come to the ground: carry set. It loses a quarter of its height's speed and an eighth of the
; other, but half of both when sliced.
; A height beyond 240 is one below the ground.
.proc hit_ground
    lda ball_h+1
    cmp #240
    bcs @down
    clc
    rts
@down:
    sec
    lda #0
    sta ball_h
    sta ball_h+1
    sbc ball_vh             ; up with what came down
    sta num
    lda #0
    sbc ball_vh+1
    sta num+1
    ldy #2
    jsr @slower
    sta ball_vh+1
    lda num
    sta ball_vh
    lda ball_vx
    sta num
    lda ball_vx+1
    sta num+1
    ldy #3
    jsr @slower
    sta ball_vx+1
    lda num
    sta ball_vx
    lda ball_vh+1
    bne :+
    lda ball_vh
    cmp #$60
    bcc @rolls              ; too little to be heard
:   jsr dust
    lda #SOUND_BOUNCE
    jsr sound_start
@rolls:
    sec
    rts
@slower:                    ; num -= num / 2^Y, or half of it; the high byte is in A too
    ldx spin
    beq :+
    ldy #1
:   lda num
    sta t0
    lda num+1
@halve:
    cmp #$80
    ror
    ror t0
    dey
    bne @halve
    sta t1
    sec
    lda num
    sbc t0
    sta num
    lda num+1
    sbc t1
    sta num+1
    rts
.endproc

; Stops the ball if it has just flown into the net. At the very top it creeps over instead.
.proc hit_net
    lda last_x
    eor ball_x+1
    bpl @done
    lda ball_h+1
    cmp #NET_HEIGHT
    bcs @done
    lda #SOUND_NET
    jsr sound_start
    lda #8
    sta shake
    lda ball_h+1
    cmp #NET_HEIGHT - 2
    bcs @creep
    lda #1
    sta net_touch
    lda last_x              ; back to where it came from, slowly
    sta ball_x+1
    ldx #$30
    ldy #$00
    lda ball_vx+1
    bmi :+
    ldx #$D0
    dey
:   stx ball_vx
    sty ball_vx+1
    lda #0
    sta ball_vh
    sta ball_vh+1
@done:
    rts
@creep:
    lda ball_vx+1           ; half as fast, and a little up
    cmp #$80
    ror ball_vx+1
    ror ball_vx
    lda #$60
    sta ball_vh
    lda #$01
    sta ball_vh+1
    rts
.endproc

; Sends the ball from side Y over the net, to land `depth` points behind it after `flight` frames.
.proc launch_over
    lda #NET_X
    cpy #0
    bne :+
    clc
    adc depth
    jmp launch
:   sec
    sbc depth
.endproc                    ; goes on

; Sends the ball to x = A so that it comes down there after `flight` frames.
;
; With one step of gravity before each step of flight, from height h over T frames: h + T v - g T (T + 1) / 2 = 0.
.proc launch
    sta land_x
    lda flight
    sta den
    sec
    lda #0
    sbc ball_x
    sta num
    lda land_x
    sbc ball_x+1
    sta num+1
    bcs @right
    jsr negate
    jsr divide
    jsr negate
    jmp @across
@right:
    jsr divide
@across:
    lda num
    sta ball_vx
    lda num+1
    sta ball_vx+1
    lda ball_h
    sta num
    lda ball_h+1
    sta num+1
    jsr divide              ; h / T
    lda num
    sta t0
    lda num+1
    sta t1
    ldx flight
    inx
    stx num
    lda gravity
    jsr multiply            ; g (T + 1)
    lsr
    ror num
    tax
    sec
    lda num
    sbc t0
    sta ball_vh
    txa
    sbc t1
    sta ball_vh+1
    rts
.endproc
