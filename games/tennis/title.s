; The title: the name, the menu, and the ball going to and fro over the net as it did in 1958.

.segment "CODE"

MENU_ROW    = 14            ; of the first choice; the others are two rows apart
MENU_COLUMN = 9
DEMO_AFTER  = 4             ; times 256 frames without a button

.proc title_begin
    jsr screen_off
    jsr draw_field
    jsr title_text
    jsr reset_ball
    lda #64
    sta ball_x+1
    lda #20
    sta ball_h+1
    lda #0
    sta demo
    sta paused
    sta rally
    sta spark_t
    sta dust_t
    sta turn
    jsr title_return
    lda #STATE_TITLE
    jsr set_state
    lda #MUSIC_TITLE
    jsr music_start
    jsr screen_on
    jmp draw_cursor
.endproc

.proc title_text
    ldx #0                  ; the name, in big letters with some air between them
@letter:
    lda logo_row, x
    beq @small
    stx t2
    ldy #0
    jsr @half
    ldx t2
    ldy #2
    jsr @half
    ldx t2
    inx
    bne @letter             ; always
@half:                      ; the upper (Y = 0) or the lower (Y = 2) two tiles of letter X
    sty t3
    lda logo_row, x
    sta t0
    cpy #0
    beq :+
    inc t0
:   lda t0
    lsr
    lsr
    lsr
    ora #$20
    sta PPU_ADDR
    lda t0
    asl
    asl
    asl
    asl
    asl
    ora logo_column, x
    sta PPU_ADDR
    lda logo, x
    jsr big_tile
    clc
    adc t3
    sta PPU_DATA
    adc #1
    sta PPU_DATA
    rts
@small:
    print_at 11, 8, text_bow
    print_at MENU_ROW, MENU_COLUMN + 2, text_one
    print_at MENU_ROW + 2, MENU_COLUMN + 2, text_two
    print_at MENU_ROW + 4, MENU_COLUMN + 2, text_doubles
    print_at 27, 10, text_start
    rts
.endproc

.proc title_frame
    lda any
    beq @idle
    lda #0                  ; somebody is there
    sta timer
    sta timer_hi
    lda any
    and #BUTTON_START | BUTTON_A
    bne @start
    lda any
    and #BUTTON_SELECT | BUTTON_DOWN
    bne @down
    lda any
    and #BUTTON_UP
    bne @up
@idle:
    lda timer_hi
    cmp #DEMO_AFTER
    beq @demo
    jsr title_ball
    jsr glow
    jmp draw_title
@down:
    ldx cursor
    inx
    cpx #3
    bne @move
    ldx #0
    beq @move               ; always
@up:
    ldx cursor
    dex
    bpl @move
    ldx #2
@move:
    stx cursor
    lda #SOUND_MENU
    jsr sound_start
    jsr draw_cursor
    jmp @idle
@demo:
    lda #1
    sta demo
    lda #MODE_TWO
    sta mode
    jmp match_begin
@start:
    lda cursor
    sta mode
    jsr match_begin
    lda #SOUND_CHOSEN
    jmp sound_start
.endproc

; Draws the arrow before the choice, and nothing before the others.
.proc draw_cursor
    ldy #MENU_ROW
    lda #0
    sta t2
@row:
    ldx #1
    lda #MENU_COLUMN
    jsr vram_begin
    lda #' '
    pha
    lda t2
    cmp cursor
    bne :+
    pla
    lda #'>'
    pha
:   pla
    sta vram, x
    inx
    jsr vram_end
    iny
    iny
    inc t2
    lda t2
    cmp #3
    bne @row
    rts
.endproc

; Lets the letters breathe.
.proc glow
    lda frame
    and #31
    bne @done
    lda frame
    and #32
    beq :+
    lda #$2A
    bne @set                ; always
:   lda #$3A
@set:
    ldy #3
    jmp vram_colour
@done:
    rts
.endproc

; The ball flies by itself, and is struck by nobody: after a bounce, when it is highest.
.proc title_ball
    jsr move_ball
    jsr remember_ball
    jsr hit_ground
    bcc :+
    inc bounces
:   lda bounces
    beq @done
    lda ball_vh+1
    bmi title_return
@done:
    rts
.endproc

; Sends the ball to the other side, by chance long or short, high or low.
.proc title_return
    jsr random
    and #15
    clc
    adc #66
    sta flight
    jsr random
    and #31
    clc
    adc #40
    sta depth
    lda #20
    sta gravity
    lda #0
    sta bounces
    ldy #0
    lda ball_x+1
    bpl :+
    iny
:   jmp launch_over
.endproc

.segment "RODATA"

logo:
    .byte "TENNISFORTWO"
logo_row:
    .byte 4, 4, 4, 4, 4, 4, 7, 7, 7, 7, 7, 7, 0
logo_column:
    .byte 7, 10, 13, 16, 19, 22, 6, 9, 12, 18, 21, 24
text_bow:
    .byte "BROOKHAVEN  1958", 0
text_one:
    .byte "1 PLAYER", 0
text_two:
    .byte "2 PLAYERS", 0
text_doubles:
    .byte "DOUBLES", 0
text_start:
    .byte "PRESS START", 0
