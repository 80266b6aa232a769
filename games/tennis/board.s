; The score on the screen. Left: name, ball of the server, points; below the name the games. Right: mirrored.

.segment "CODE"

.proc write_left
    ldy #ROW_SCORE
    ldx #8
    lda #2
    jsr vram_begin
    ldy #0
    jsr put_name
    ldy #0
    jsr put_server
    ldy #0
    lda #0
    jsr put_points
    jsr vram_end
    ldy #ROW_SCORE + 1
    ldx #8
    lda #2
    jsr vram_begin
    ldy #0
    jsr put_games
    lda #0
    sta vram, x
    inx
    ldy #0
    lda #2
    jsr put_points
    jmp vram_end
.endproc

.proc write_right
    ldy #ROW_SCORE
    ldx #8
    lda #22
    jsr vram_begin
    ldy #1
    lda #0
    jsr put_points
    ldy #1
    jsr put_server
    ldy #1
    jsr put_name
    jsr vram_end
    ldy #ROW_SCORE + 1
    ldx #8
    lda #22
    jsr vram_begin
    ldy #1
    lda #2
    jsr put_points
    lda #0
    sta vram, x
    inx
    ldy #1
    jsr put_games
    jmp vram_end
.endproc

; The three letters that stand for side Y.
.proc put_name
    stx t2
    tya
    jsr winner_row
    lda short_text, x
    sta ptr
    lda short_text+1, x
    sta ptr+1
    ldx t2
    ldy #0
:   lda (ptr), y
    sta vram, x
    inx
    iny
    cpy #3
    bne :-
    rts
.endproc

; A ball beside side Y if it serves.
.proc put_server
    sty t2
    lda server
    and #1
    eor t2
    beq :+
    lda #0
    beq @put                ; always
:   lda #'@'
@put:
    sta vram, x
    inx
    rts
.endproc

; The upper (A = 0) or lower (A = 2) half of side Y's points in big digits.
.proc put_points
    sta t3
    lda points, y
    asl
    tay
    jsr @digit
    iny
@digit:
    lda point_digits, y
    jsr big_tile
    beq @space
    clc
    adc t3
    sta vram, x
    adc #1
    bne @second             ; always
@space:
    sta vram, x
@second:
    sta vram+1, x
    inx
    inx
    rts
.endproc

; A lamp for each game of side Y, lit when it is won.
.proc put_games
    lda games, y
    sta t2
    ldy #0
@lamp:
    lda #'+'
    cpy t2
    bcs :+
    lda #'*'
:   sta vram, x
    inx
    iny
    cpy #GAMES_TO_WIN
    bne @lamp
    rts
.endproc

.proc write_rally
    ldy #ROW_SCORE + 1
    ldx #2
    lda #15
    jsr vram_begin
    stx t2
    lda rally
    jsr digits
    ldy t2
    sta vram+1, y
    txa
    sta vram, y
    iny
    iny
    tya
    tax
    jmp vram_end
.endproc

.segment "RODATA"

short_text:
    .addr short_p1, short_cpu, short_p1, short_p2, short_t1, short_t2
short_p1:
    .byte "P1 "
short_p2:
    .byte " P2"
short_cpu:
    .byte "CPU"
short_t1:
    .byte "1-3"
short_t2:
    .byte "2-4"
