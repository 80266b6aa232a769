; Computer players. They see what a person sees, a little too exactly, and so they get a timing that errs.

.segment "CODE"

; Chooses how each computer player will play the next ball.
.proc roll_all
    ldx #3
@next:
    jsr random
    and #15
    sec
    sbc #8
    sta ai_error, x
    jsr random
    sta ai_shot, x
    dex
    bpl @next
    rts
.endproc

; Presses the buttons of those whom nobody plays.
.proc computers
    ldx players
    dex
@next:
    stx who
    lda humans
    and player_bit, x
    beq @think
    cpx server              ; a person who does not serve is helped
    bne @skip
    lda auto
    beq @skip
    lda state
    cmp #STATE_RALLY
    bcs @skip
@think:
    jsr think
@skip:
    ldx who
    dex
    bpl @next
    rts
.endproc

; One computer player, X.
.proc think
    lda #0
    sta pads, x
    sta pressed, x
    lda state
    cmp #STATE_SERVE
    beq @serve
    cmp #STATE_TOSS
    beq @toss
    cmp #STATE_RALLY
    beq @rally
    rts
@serve:
    cpx server
    bne @idle
    lda timer_hi
    bne @press_a
    lda timer
    cmp #50
    bcc @idle
@press_a:
    lda #BUTTON_A
    sta pressed, x
    rts
@toss:
    cpx server
    bne @idle
    lda ball_vh+1
    bpl @idle
    lda ai_shot, x          ; hits it at 44 to 52 points, now and then hard
    and #7
    clc
    adc #46
    cmp ball_h+1
    bcc @idle
    lda ai_shot, x
    and #%01100000
    bne @press_a
    lda #BUTTON_B
    sta pressed, x
@idle:
    rts
@rally:
    lda swing, x
    bne think_aim
    jsr think_goal
    jsr think_run
    jmp think_swing
.endproc

; While it swings: up or down, and long or short.
.proc think_aim
    lda ai_shot, x
    and #15
    tay
    lda aims, y
    ldy ball_h+1
    cpy #14
    bcs :+
    and #$FF ^ BUTTON_DOWN  ; a low ball is not to be driven
:   sta aim
    txa
    and #1
    tay
    lda aim
    and #BUTTON_UP | BUTTON_DOWN
    sta pads, x
    lda aim
    and #BUTTON_RIGHT
    beq :+
    lda forward, y
:   ora pads, x
    sta pads, x
    lda aim
    and #BUTTON_LEFT
    beq :+
    lda backward, y
:   ora pads, x
    sta pads, x
    rts
.endproc

; Where player X wants to be: at the ball if it is his, and at home otherwise.
.proc think_goal
    lda home, x
    sta ai_goal
    txa
    and #1
    cmp turn
    bne @done
    tay
    lda ai_x                ; stand behind the ball, so that it comes to the sweet spot
    clc
    adc stand, y
    sta t0
    lda players
    cmp #4
    bne @mine
    jsr distance            ; in a doubles the nearer of the two goes
    sta t1
    txa
    eor #2
    tax
    jsr distance
    ldx who
    cmp t1
    bcc @done
@mine:
    lda t0
    sta ai_goal
@done:
    rts
.endproc

; From player X to the place t0, in A.
.proc distance
    lda player_x, x
    sec
    sbc t0
    bcs :+
    eor #$FF
    adc #1
:   rts
.endproc

; Runs towards the goal.
.proc think_run
    lda ai_goal
    sec
    sbc player_x, x
    bcc @left
    cmp #4
    bcc @there
    lda #BUTTON_RIGHT
    sta pads, x
    rts
@left:
    cmp #<-3
    bcs @there
    lda #BUTTON_LEFT
    sta pads, x
@there:
    rts
.endproc

; Swings when the ball is about to be at the sweet spot.
.proc think_swing
    txa
    and #1
    cmp turn
    bne @no
    tay
    lda ball_vx+1           ; it moves this far until the racket is there
    bpl :+
    eor #$FF
:   sta t0
    asl
    adc t0
    adc #SWEET_SPOT + 1
    adc ai_error, x         ; the carry does not matter
    sta t0
    jsr reach_wide
    bcc @no
    lda bounces
    beq @volley
    lda ball_h+1
    cmp #REACH_UP - 2
    bcs @no
    lda ai_shot, x          ; now and then a slice
    and #%11100000
    beq @slice
    lda #BUTTON_A
    bne @press              ; always
@volley:
    lda serving
    bne @no
    lda ai_shot, x          ; a high ball is smashed, if it feels like it
    bpl @no
    lda ball_h+1
    cmp #32
    bcc @no
    cmp #56
    bcs @no
@slice:
    lda #BUTTON_B
@press:
    sta pressed, x
@no:
    rts
.endproc

; Carry set: the ball is in front of player X (of side Y) by less than t0, or just behind him.
.proc reach_wide
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
    cmp t0
    bcs @far
    sec
    rts
@behind:
    cmp #<-REACH_BACK
    rts
@far:
    clc
    rts
.endproc

.segment "RODATA"

player_bit:
    .byte %0001, %0010, %0100, %1000
stand:
    .byte <-SWEET_SPOT, SWEET_SPOT

; Sixteen ways to aim; right is forward here.
aims:
    .byte 0, 0, 0, BUTTON_UP, BUTTON_DOWN, BUTTON_DOWN, BUTTON_RIGHT, BUTTON_RIGHT
    .byte BUTTON_LEFT, BUTTON_LEFT, BUTTON_UP, 0, BUTTON_UP | BUTTON_LEFT, 0, BUTTON_DOWN | BUTTON_LEFT, 0
