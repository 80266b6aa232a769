; Effects that decide nothing: the screen shakes, it flashes, sparks fly.

.segment "CODE"

; Moves the effects on by a frame.
.proc run_effects
    ldx #0
    ldy #0
    lda shake
    beq @still
    dec shake
    and #3
    tay
    lda shake_y, y
    pha
    lda shake_x, y
    tax
    pla
    tay
@still:
    stx scroll_x
    sty scroll_y
    lda spark_t
    beq :+
    dec spark_t
:   lda dust_t
    beq :+
    dec dust_t
:   lda flash
    beq @done
    dec flash
    lda #$0F
    ldy flash
    beq @set                ; it is over
    lda #$0B
@set:
    ldy #0
    jmp vram_colour
@done:
    rts
.endproc

; Sparks at the ball.
.proc spark
    lda #16
    sta spark_t
    lda ball_x+1
    sta spark_x
    jsr ball_line
    sta spark_y
    rts
.endproc

; Dust where the ball meets the ground.
.proc dust
    lda #10
    sta dust_t
    lda ball_x+1
    sta dust_x
    rts
.endproc

.segment "RODATA"

shake_x:
    .byte 0, 2, 0, 1
shake_y:
    .byte 1, 0, 2, 1
