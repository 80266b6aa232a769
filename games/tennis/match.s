; A match: serve, rally, point, and again.

.segment "CODE"

DEMO_LENGTH = 10            ; times 256 frames

.proc match_begin
    jsr screen_off
    jsr draw_field
    print_at 2, 14, text_rally
    lda demo
    beq :+
    print_at 27, 8, text_demo
:   lda #0
    sta points+0
    sta points+1
    sta games+0
    sta games+1
    sta longest
    sta server
    sta paused
    sta faults
    sta match_over
    ldx mode
    lda players_of, x
    sta players
    lda humans_of, x
    ldy demo
    beq :+
    lda #0
:   sta humans
    jsr music_stop
    jsr serve_begin
    jmp screen_on
.endproc

.proc match_frame
    lda demo
    beq @play
    lda any
    and #BUTTON_START | BUTTON_A
    bne @title
    lda frame
    bne @play
    inc demo
    lda demo
    cmp #DEMO_LENGTH
    bne @play
@title:
    jmp title_begin
@play:
    jsr pause
    lda paused
    bne @draw
    jsr join_in
    jsr computers
    jsr run_match
    lda state
    beq @gone               ; back to the title
    jsr move_players
@draw:
    jmp draw_match
@gone:
    rts
.endproc

; What is special about each state.
.proc run_match
    lda state
    asl
    tax
    lda frames - 2, x
    sta ptr
    lda frames - 1, x
    sta ptr+1
    jmp (ptr)
frames:
    .addr serve_frame, toss_frame, rally_frame, point_frame, match_won_frame
.endproc

; Start holds the game, and lets it go on.
.proc pause
    lda state
    cmp #STATE_POINT
    bcs @no
    lda demo
    bne @no
    lda any
    and #BUTTON_START
    beq @no
    lda #SOUND_MENU
    jsr sound_start
    lda paused
    eor #1
    sta paused
    beq @on
    lda #0
    sta small_len
    message text_pause
@no:
    rts
@on:
    jmp clear_message
.endproc

; In a doubles the computer plays for pads 3 and 4 until somebody presses a button there.
.proc join_in
    lda mode
    cmp #MODE_DOUBLES
    bne @no
    lda demo
    bne @no
    lda pressed+2
    beq :+
    lda humans
    ora #%0100
    sta humans
:   lda pressed+3
    beq @no
    lda humans
    ora #%1000
    sta humans
@no:
    rts
.endproc

; Everybody to his place; the server gets the ball.
.proc serve_begin
    lda #STATE_SERVE
    jsr set_state
    jsr reset_ball
    lda #0
    sta rally
    sta auto
    sta timer
    ldx #3
@place:
    lda #0
    sta px_frac, x
    sta pv, x
    sta pv_frac, x
    sta player_h, x
    sta swing, x
    lda home, x
    sta player_x, x
    dex
    bpl @place
    ldx server
    txa
    and #1
    sta turn
    tay
    lda serve_x, y
    sta player_x, x
    jsr hold_ball
    jsr roll_all
    jsr clear_message
    lda jobs
    ora #JOBS_SCORE
    sta jobs
    rts
.endproc

; The ball is in the server's hand.
.proc hold_ball
    ldx server
    txa
    and #1
    tay
    lda player_x, x
    clc
    adc hand, y
    sta ball_x+1
    lda #TOSS_HEIGHT
    sta ball_h+1
    lda #0
    sta ball_x
    sta ball_h
    rts
.endproc

; The server tosses the ball when he likes. If he never does, the computer does it for him.
.proc serve_frame
    jsr hold_ball
    lda timer_hi
    cmp #2
    bcc :+
    lda #1
    sta auto
:   ldx server
    lda pressed, x
    and #BUTTON_A | BUTTON_B
    beq @wait
    lda timer
    cmp #20                 ; not with the button that began the match
    bcs @toss
    lda timer_hi
    beq @wait
@toss:
    lda #<TOSS_SPEED
    sta ball_vh
    lda #>TOSS_SPEED
    sta ball_vh+1
    lda first_gravity
    sta gravity
    lda #0
    sta pressed, x          ; this press is used up
    lda #SOUND_TOSS
    jsr sound_start
    lda #STATE_TOSS
    jmp set_state
@wait:
    rts
.endproc

; The ball is caught again if nobody hits it.
.proc toss_frame
    jsr move_ball
    jsr remember_ball
    lda ball_vh+1
    bpl @up
    lda ball_h+1
    cmp #TOSS_HEIGHT
    bcs @up
    jsr hold_ball
    lda #STATE_SERVE
    jmp set_state
@up:
    rts
.endproc

.proc rally_frame
    jsr fly
    bcc :+
    jmp judge_ground
:   lda ball_gone
    beq @on
    jmp judge_edge
@on:
    rts
.endproc

; Moves the ball through the court. Carry set: it touched the ground.
.proc fly
    lda ball_gone
    bne @gone
    jsr move_ball
    jsr hit_net
    jsr remember_ball
    lda ball_x+1
    cmp #EDGE_LEFT
    bcc @edge
    cmp #EDGE_RIGHT
    bcs @edge
    jmp hit_ground
@edge:
    lda #1
    sta ball_gone
@gone:
    ldx trail_i             ; its trail fades
    inx
    txa
    and #63
    sta trail_i
    tax
    lda #0
    sta trail_x, x
    clc
    rts
.endproc

; The point is over; the ball rolls on, and then the next one begins.
.proc point_frame
    jsr fly
    dec wait
    bne @on
    lda match_over
    bne match_won
    jmp serve_begin
@on:
    rts
.endproc

.proc match_won
    lda #STATE_MATCH
    jsr set_state
    lda #0
    sta small_len
    lda games+0
    ora #'0'
    sta small_text+0
    lda #' '
    sta small_text+1
    sta small_text+3
    lda #'-'
    sta small_text+2
    lda games+1
    ora #'0'
    sta small_text+4
    lda #5
    sta small_len
    add_text text_longest
    lda longest
    jsr small_number
    lda winner
    jsr winner_row
    lda wins_text, x
    pha
    lda wins_text+1, x
    tax
    pla
    jsr show_message
    lda #MUSIC_WON
    jmp music_start
.endproc

; X = the place of side A's name in a table of addresses.
.proc winner_row
    sta t0
    lda mode
    asl
    ora t0
    asl
    tax
    rts
.endproc

; Fireworks, until somebody presses a button or some seconds have passed.
.proc match_won_frame
    jsr fly
    lda timer_hi
    cmp #3
    bcs @title
    lda timer
    and #31
    bne :+
    jsr random
    and #127
    adc #64
    sta spark_x
    jsr random
    and #63
    adc #64
    sta spark_y
    lda #16
    sta spark_t
:   lda timer_hi
    bne @ask
    lda timer
    cmp #90
    bcc @on
@ask:
    lda any
    and #BUTTON_START | BUTTON_A
    bne @title
@on:
    rts
@title:
    jmp title_begin
.endproc

.segment "BSS"
auto:       .res 1          ; 1: the computer serves for an idle player
wait:       .res 1          ; frames until the next point
match_over: .res 1

.segment "RODATA"

players_of:
    .byte 2, 2, 4
humans_of:
    .byte %0001, %0011, %0011
home:
    .byte 44, 212, 92, 164
serve_x:
    .byte 28, 228
hand:
    .byte 7, <-7

text_rally:
    .byte "RALLY", 0
text_demo:
    .byte "DEMO   PRESS START", 0
text_pause:
    .byte "PAUSE", 0
text_longest:
    .byte "   LONGEST RALLY ", 0

wins_text:
    .addr text_p1_wins, text_cpu_wins, text_p1_wins, text_p2_wins, text_t1_wins, text_t2_wins
text_p1_wins:
    .byte "PLAYER 1 WINS", 0
text_p2_wins:
    .byte "PLAYER 2 WINS", 0
text_cpu_wins:
    .byte "COMPUTER WINS", 0
text_t1_wins:
    .byte "TEAM 1-3 WINS", 0
text_t2_wins:
    .byte "TEAM 2-4 WINS", 0
