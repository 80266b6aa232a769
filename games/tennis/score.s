; The rules: who gets the point, and how the score is told.

.segment "CODE"

WAIT_POINT = 84             ; frames that a call stays
WAIT_GAME  = 140
WAIT_FAULT = 50

; The ball touched the ground.
.proc judge_ground
    lda ball_x+1
    asl
    lda #0
    rol                     ; the side on which it did
    eor turn
    bne @own                ; the hitter's own
    lda bounces
    bne @twice
    lda ball_x+1
    cmp #COURT_LEFT
    bcc @out
    cmp #COURT_RIGHT + 1
    bcs @out
    inc bounces
    rts
@twice:
    jmp missed
@own:
    lda bounces             ; after a good bounce it may well come back over the net
    bne @twice
    lda net_touch
    beq @out
    message text_net
    jmp bad_shot
@out:
    message text_out
    jmp bad_shot
.endproc

; The ball went out of sight.
.proc judge_edge
    lda bounces
    bne missed
    message text_out
    jmp bad_shot
.endproc

; The side whose turn it was did not get the ball.
.proc missed
    lda rally
    cmp #1
    bne @rally
    message text_ace
    jmp @give
@rally:
    lda spin
    beq :+
    message text_drop
    jmp @give
:   message text_winner
@give:
    lda turn
    eor #1
    jmp award
.endproc

; The side that hit the ball last hit it badly. The first time at the serve this is only a fault.
.proc bad_shot
    lda serving
    beq @lost
    lda faults
    bne @double
    inc faults
    lda #0
    sta small_len
    message text_fault
    lda #SOUND_FAULT
    jsr sound_start
    lda #WAIT_FAULT
    sta wait
    lda #$FF
    sta winner              ; nobody
    lda #STATE_POINT
    jmp set_state
@double:
    message text_double
@lost:
    lda turn
    jmp award
.endproc

; The point goes to side A.
.proc award
    sta winner
    lda #0
    sta faults
    sta small_len
    lda rally
    cmp longest
    bcc :+
    sta longest
:   lda #WAIT_POINT
    sta wait
    lda #STATE_POINT
    jsr set_state
    lda jobs
    ora #JOBS_SCORE
    sta jobs
    lda #SOUND_CROWD
    jsr sound_start
    lda winner
    tax
    eor #1
    tay
    inc points, x
    lda points, x
    cmp #4
    bcc @score
    bne @game               ; out of the advantage
    lda points, y
    cmp #3
    bcc @game
    beq @advantage
    lda #3                  ; the other had it: deuce again
    sta points+0
    sta points+1
@score:
    lda points+0
    cmp #3
    bne @plain
    cmp points+1
    bne @plain
    add_text text_deuce
    rts
@plain:
    ldx points+0
    jsr add_points
    add_text text_to
    ldx points+1
    jmp add_points
@advantage:
    add_text text_advantage
    jmp add_winner
@game:
    lda #0
    sta points+0
    sta points+1
    inc games, x
    lda games, x
    cmp #GAMES_TO_WIN
    bne :+
    inc match_over
:   jsr next_server
    lda #WAIT_GAME
    sta wait
    lda #SOUND_GAME
    jsr sound_start
    add_text text_game
    jmp add_winner
.endproc

.proc next_server
    ldx players
    dex
    stx t0                  ; 1 or 3: a mask
    ldx server
    inx
    txa
    and t0
    sta server
    rts
.endproc

; Adds the name of the winner to the small line.
.proc add_winner
    lda winner
    jsr winner_row
    lda name_text, x
    pha
    lda name_text+1, x
    tax
    pla
    jmp small_add
.endproc

; Adds the points X, as they are told.
.proc add_points
    txa
    asl
    tay
    ldx small_len
    lda point_digits, y
    cmp #' '
    beq :+                  ; a single digit
    sta small_text, x
    inx
:   lda point_digits+1, y
    sta small_text, x
    inx
    stx small_len
    rts
.endproc

; Adds the number A, at most 99.
.proc small_number
    jsr digits
    ldy small_len
    cpx #'0'
    beq :+
    pha
    txa
    sta small_text, y
    iny
    pla
:   sta small_text, y
    iny
    sty small_len
    rts
.endproc

; The digits of A, at most 99: tens in X, ones in A.
.proc digits
    ldx #'0'
    sec
:   sbc #10
    bcc @ones
    inx
    bne :-                  ; always
@ones:
    adc #10 + '0'
    rts
.endproc

.segment "RODATA"

point_digits:
    .byte " 0153040AD"

text_out:
    .byte "OUT!", 0
text_net:
    .byte "NET", 0
text_ace:
    .byte "ACE!", 0
text_drop:
    .byte "DROP SHOT", 0
text_winner:
    .byte "WINNER!", 0
text_fault:
    .byte "FAULT", 0
text_double:
    .byte "DOUBLE FAULT", 0
text_deuce:
    .byte "DEUCE", 0
text_to:
    .byte " - ", 0
text_advantage:
    .byte "ADVANTAGE ", 0
text_game:
    .byte "GAME ", 0

name_text:
    .addr text_p1, text_cpu, text_p1, text_p2, text_t1, text_t2
text_p1:
    .byte "PLAYER 1", 0
text_p2:
    .byte "PLAYER 2", 0
text_cpu:
    .byte "COMPUTER", 0
text_t1:
    .byte "TEAM 1-3", 0
text_t2:
    .byte "TEAM 2-4", 0
