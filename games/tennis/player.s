; Players: they run, jump and swing. A computer player is moved like a person, only its buttons come from elsewhere.

.segment "CODE"

.proc move_players
    ldx players
    dex
@next:
    stx who
    jsr begin_swing
    ldx who
    jsr run
    ldx who
    jsr jump
    ldx who
    jsr go_on_swinging
    ldx who
    dex
    bpl @next
    rts
.endproc

; Begins the swing that player X asks for.
.proc begin_swing
    lda swing, x
    bne @no
    lda state
    cmp #STATE_POINT
    bcs @no
    lda pressed, x
    and #BUTTON_A | BUTTON_B
    beq @no
    tay                     ; which of them
    cpx server
    bne @rally
    lda state
    cmp #STATE_SERVE
    beq @no
    cmp #STATE_TOSS
    bne @rally
    lda #SWING_SERVE
    cpy #BUTTON_B
    bne @set
    lda #SWING_POWER
    bne @set                ; always
@rally:
    lda #SWING_DRIVE
    cpy #BUTTON_B
    bne @set
    lda #SWING_SLICE
    ldy state
    cpy #STATE_RALLY
    bne @set
    ldy ball_h+1
    cpy #30
    bcc @set
    ldy player_h, x
    bne @set                ; one cannot jump in the air
    lda #<JUMP_SPEED
    sta pj_frac, x
    lda #>JUMP_SPEED
    sta pj, x
    lda #SWING_SMASH
@set:
    sta swing, x
    lda #0
    sta swing_t, x
    lda #SOUND_SWING
    jmp sound_start
@no:
    rts
.endproc

; Lets player X run: the speed goes towards the one that the pad asks for, step by step.
.proc run
    ldy #0                  ; wanted: 0
    sty speed_f
    sty speed_i
    lda swing, x
    bne @wanted             ; while he swings the pad only aims
    cpx server
    bne @free
    lda state
    cmp #STATE_TOSS + 1
    bcc @wanted             ; the server stands
@free:
    lda state
    cmp #STATE_POINT
    bcs @wanted
    lda pads, x
    and #BUTTON_LEFT | BUTTON_RIGHT
    cmp #BUTTON_RIGHT
    beq @right
    cmp #BUTTON_LEFT
    bne @wanted
    lda #<-RUN_SPEED
    sta speed_f
    lda #>-RUN_SPEED
    sta speed_i
    bne @wanted             ; always
@right:
    lda #<RUN_SPEED
    sta speed_f
    lda #>RUN_SPEED
    sta speed_i
@wanted:
    sec                     ; how much is missing
    lda speed_f
    sbc pv_frac, x
    sta t0
    lda speed_i
    sbc pv, x
    sta t1
    bmi @less
    bne @faster
    lda t0
    cmp #RUN_STEP
    bcc @there
@faster:
    clc
    lda pv_frac, x
    adc #RUN_STEP
    sta pv_frac, x
    bcc @move
    inc pv, x
    jmp @move
@less:
    cmp #$FF
    bne @slower
    lda t0
    cmp #<-RUN_STEP
    bcs @there
@slower:
    sec
    lda pv_frac, x
    sbc #RUN_STEP
    sta pv_frac, x
    bcs @move
    dec pv, x
    jmp @move
@there:
    lda speed_f
    sta pv_frac, x
    lda speed_i
    sta pv, x
@move:
    clc
    lda px_frac, x
    adc pv_frac, x
    sta px_frac, x
    lda player_x, x
    adc pv, x
    sta player_x, x
    txa
    and #1
    tay
    lda player_x, x
    cmp run_min, y
    bcc @low
    cmp run_max, y
    bcs @high
    rts
@low:
    lda run_min, y
    bne @stop               ; always
@high:
    lda run_max, y
@stop:
    sta player_x, x
    lda #0
    sta px_frac, x
    sta pv, x
    sta pv_frac, x
    rts
.endproc

; Lets player X fall.
.proc jump
    lda player_h, x
    ora ph_frac, x
    ora pj, x
    ora pj_frac, x
    beq @stands
    clc
    lda ph_frac, x
    adc pj_frac, x
    sta ph_frac, x
    lda player_h, x
    adc pj, x
    sta player_h, x
    bmi @lands
    sec
    lda pj_frac, x
    sbc #JUMP_FALL
    sta pj_frac, x
    lda pj, x
    sbc #0
    sta pj, x
@stands:
    rts
@lands:
    lda #0
    sta player_h, x
    sta ph_frac, x
    sta pj, x
    sta pj_frac, x
    rts
.endproc

; One frame of player X's swing: in the middle of it the racket may meet the ball.
.proc go_on_swinging
    lda swing, x
    beq @no
    inc swing_t, x
    lda swing_t, x
    cmp #SWING_END
    bcs @end
    cmp #SWING_FIRST
    bcc @no
    cmp #SWING_LAST + 1
    bcs @no
    jmp meet_ball
@end:
    lda player_h, x         ; a smash ends on the ground
    bne @no
    sta swing, x
@no:
    rts
.endproc

; Hits the ball if player X can reach it, and may.
.proc meet_ball
    lda ball_gone
    bne @no
    lda state
    cmp #STATE_TOSS
    beq @serve
    cmp #STATE_RALLY
    bne @no
    txa
    and #1
    tay
    cmp turn
    bne @no
    lda serving
    beq :+
    lda bounces             ; a serve must bounce first
    beq @no
:   jsr reach
    bcc @no
    sec
    sbc #SWEET_SPOT
    sta offset
    lda swing, x
    cmp #SWING_SMASH
    beq @smash
    lda ball_h+1
    cmp #REACH_UP
    bcs @no
    jmp shot
@smash:
    sec
    lda ball_h+1
    sbc player_h, x
    bcc @no
    cmp #12
    bcc @no
    cmp #48
    bcs @no
    jmp shot
@serve:
    cpx server
    bne @no
    lda swing, x
    cmp #SWING_SERVE
    bcc @no
    lda ball_h+1
    cmp #SERVE_LOW
    bcc @no
    cmp #SERVE_HIGH
    bcs @no
    sec
    sbc #SERVE_BEST
    sta offset
    jmp shot
@no:
    rts
.endproc

; How far the ball is in front of player X, in A, signed; Y is his side. Carry set: he can reach it.
.proc reach
    tya
    bne @from_right
    sec
    lda ball_x+1
    sbc player_x, x
    jmp @judge
@from_right:
    sec
    lda player_x, x
    sbc ball_x+1
@judge:
    bcc @behind
    cmp #REACH_FRONT + 1
    bcs @far
    sec
    rts
@behind:
    cmp #<-REACH_BACK
    rts                     ; carry set: not further behind than that
@far:
    clc
    rts
.endproc

.segment "RODATA"

run_min:
    .byte LEFT_MIN, RIGHT_MIN
run_max:
    .byte LEFT_MAX, RIGHT_MAX
