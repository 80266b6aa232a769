; The background: the screen of the oscilloscope, what is written on it, and how changes get there in time.
;
; While the picture is on, tiles can only be changed in the vertical blank, and only a few. What is to be changed is a bit in
; `jobs`; one job is done in a frame, so that the blank is never too short for it.

JOB_CLEAR1 = %00000001      ; wipe the message away, in three parts
JOB_CLEAR2 = %00000010
JOB_CLEAR3 = %00000100
JOB_BIG    = %00001000      ; write it: the big line
JOB_SMALL  = %00010000      ; and the small one
JOB_LEFT   = %00100000      ; the left side's score
JOB_RIGHT  = %01000000
JOB_RALLY  = %10000000      ; the length of the rally

JOBS_CLEAR   = JOB_CLEAR1 | JOB_CLEAR2 | JOB_CLEAR3
JOBS_MESSAGE = JOBS_CLEAR | JOB_BIG | JOB_SMALL
JOBS_SCORE   = JOB_LEFT | JOB_RIGHT | JOB_RALLY

ROW_BIG   = 8
ROW_SMALL = 11
ROW_SCORE = 2

.segment "CODE"

; Sends the waiting tiles to the picture unit. Only in the vertical blank.
.proc flush_vram
    ldx #0
@entry:
    lda vram, x
    beq @done
    sta PPU_ADDR
    lda vram+1, x
    sta PPU_ADDR
    ldy vram+2, x
    inx
    inx
    inx
@byte:
    lda vram, x
    sta PPU_DATA
    inx
    dey
    bne @byte
    beq @entry
@done:
    lda #0
    sta vram
    sta vram_i
    rts
.endproc

; Begins an entry of X tiles at row Y, column A. The place of the first is then in X.
.proc vram_begin
    sta t0
    stx t1
    ldx vram_i
    tya
    lsr
    lsr
    lsr
    ora #$20
    sta vram, x
    tya
    asl
    asl
    asl
    asl
    asl
    ora t0
    sta vram+1, x
    lda t1
    sta vram+2, x
    inx
    inx
    inx
    rts
.endproc

; Ends an entry whose last tile is before X.
.proc vram_end
    lda #0
    sta vram, x
    stx vram_i
    rts
.endproc

; Sets the colour at $3F00 + Y to A.
.proc vram_colour
    ldx vram_i
    pha
    lda #$3F
    sta vram, x
    tya
    sta vram+1, x
    lda #1
    sta vram+2, x
    pla
    sta vram+3, x
    inx
    inx
    inx
    inx
    bne vram_end            ; always
.endproc

; Does the first of the jobs.
.proc run_jobs
    lda vram_i
    bne @none               ; something else goes first
    lda jobs
    beq @none
    ldx #0
    lda #1
@find:
    bit jobs
    bne @found
    asl
    inx
    bne @find               ; always
@found:
    eor jobs
    sta jobs
    txa
    asl
    tax
    lda table, x
    sta ptr
    lda table+1, x
    sta ptr+1
    jmp (ptr)
@none:
    rts
table:
    .addr clear_row1, clear_row2, clear_row3, write_big, write_small, write_left, write_right, write_rally
.endproc

.proc clear_row1
    ldy #ROW_BIG
    bne clear_row           ; always
.endproc

.proc clear_row2
    ldy #ROW_BIG + 1
    bne clear_row           ; always
.endproc

.proc clear_row3
    ldy #ROW_SMALL
.endproc                    ; goes on

; Puts the graticule back into row Y.
.proc clear_row
    sty t2
    ldx #28
    lda #2
    jsr vram_begin
    lda #2
    sta t3
:   jsr grid_tile
    sta vram, x
    inx
    inc t3
    lda t3
    cmp #30
    bne :-
    jmp vram_end
.endproc

; The tile of the big letter A, its top left one. 0 for a space.
.proc big_tile
    cmp #' '
    beq @space
    cmp #'-'
    beq @dash
    cmp #'!'
    beq @shout
    cmp #'A'
    bcs @letter
    sbc #'0' - 1            ; the carry is clear
    asl
    asl
    adc #BIG_0
    rts
@letter:
    sbc #'A'
    asl
    asl
    adc #BIG_A
    rts
@space:
    lda #0
    rts
@dash:
    lda #BIG_DASH
    rts
@shout:
    lda #BIG_SHOUT
    rts
.endproc

; Writes the message's big line into the middle of its row.
.proc write_big
    ldy #$FF
:   iny
    lda (big_text), y
    bne :-
    sty t2
    tya
    beq @none
    ldy #ROW_BIG
    lda #0
    jsr @half
    ldy #ROW_BIG + 1
    lda #2
@half:
    sta t3                  ; 0 for the upper, 2 for the lower tiles
    lda t2
    asl
    tax
    lda #16
    sec
    sbc t2
    jsr vram_begin
    ldy #0
@letter:
    lda (big_text), y
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
    iny
    cpy t2
    bne @letter
    jmp vram_end
@none:
    rts
.endproc

; Writes the message's small line.
.proc write_small
    ldx small_len
    beq @none
    txa
    lsr
    sta t0
    lda #16
    sec
    sbc t0
    ldy #ROW_SMALL
    jsr vram_begin
    ldy #0
:   lda small_text, y
    sta vram, x
    inx
    iny
    cpy small_len
    bne :-
    jmp vram_end
@none:
    rts
.endproc

; Puts the string at A (low) and X (high) behind what is in the small line already.
.proc small_add
    sta ptr
    stx ptr+1
    ldy #0
    ldx small_len
@next:
    lda (ptr), y
    beq @done
    sta small_text, x
    inx
    iny
    bne @next               ; always
@done:
    stx small_len
    rts
.endproc

.macro add_text string
    lda #<string
    ldx #>string
    jsr small_add
.endmacro

; Shows the string at A and X as a big message, with the small line as it is.
.proc show_message
    sta big_text
    stx big_text+1
    lda jobs
    ora #JOBS_MESSAGE
    sta jobs
    rts
.endproc

.macro message string
    lda #<string
    ldx #>string
    jsr show_message
.endmacro

; Wipes the message away.
.proc clear_message
    lda jobs
    and #$FF ^ (JOB_BIG | JOB_SMALL)
    ora #JOBS_CLEAR
    sta jobs
    rts
.endproc
