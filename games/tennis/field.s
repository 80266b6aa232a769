; The empty screen: the case of the oscilloscope, its graticule, and the court as a bright line.

ROW_GROUND = GROUND_Y / 8

TILE_GRID = $01             ; down, across, crossing, and the middle axis
TILE_DEEP = $0D             ; below the ground
TILE_CASE = $10             ; bare, above, below, left, right, four corners, a screw

.segment "CODE"

; Turns the picture off, and the interrupt.
.proc screen_off
    lda #0
    sta PPU_CTRL
    sta PPU_MASK
    sta vram
    sta vram_i
    sta jobs
    sta scroll_x
    sta scroll_y
    sta shake
    sta flash
    rts
.endproc

; Turns the interrupt on again just after the start of a vertical blank; the next one turns on the picture.
.proc screen_on
    jsr hide_sprites
    lda #$3F
    sta PPU_ADDR
    ldx #0
    stx PPU_ADDR
:   lda colours, x
    sta PPU_DATA
    inx
    cpx #32
    bne :-
    bit PPU_STATUS
:   bit PPU_STATUS
    bpl :-
    lda #CTRL_ON
    sta PPU_CTRL
    rts
.endproc

; Draws the empty screen into both nametables. The second one is seen for a moment when the screen shakes.
.proc draw_field
    bit PPU_STATUS
    lda #$20
    jsr @table
    lda #$24
@table:
    sta PPU_ADDR
    lda #0
    sta PPU_ADDR
    sta t2
@row:
    lda #0
    sta t3
@column:
    jsr field_tile
    sta PPU_DATA
    inc t3
    lda t3
    cmp #32
    bne @column
    inc t2
    lda t2
    cmp #30
    bne @row
    ldx #0
:   lda attributes, x
    sta PPU_DATA
    inx
    cpx #64
    bne :-
    rts
.endproc

; The tile of the empty screen at row t2, column t3.
.proc field_tile
    ldx t3
    lda t2
    cmp #2
    bcc @above
    cmp #28
    bcs @below
    cpx #0
    beq @left
    cpx #31
    beq @right
    ldy #3                  ; the four corners of the screen
:   cmp corner_row, y
    bne @not
    pha
    txa
    cmp corner_column, y
    beq @corner
    pla
@not:
    dey
    bpl :-
    cmp #ROW_GROUND
    beq @ground
    bcs @deep
    cmp #ROW_GROUND - 3
    bcs @net
@grid:
    jmp grid_tile
@corner:
    pla
    tya
    clc
    adc #TILE_CASE + 5
    rts
@above:
    ldy #TILE_CASE + 1
    cmp #1
    beq @edge
@screws:
    lda #TILE_CASE + 9
    cpx #2
    beq @out
    cpx #29
    beq @out
    lda #TILE_CASE
@out:
    rts
@below:
    ldy #TILE_CASE + 2
    cmp #28
    bne @screws
@edge:                      ; Y in the middle, the bare case at both ends
    lda #TILE_CASE
    cpx #0
    beq @out
    cpx #31
    beq @out
    tya
    rts
@left:
    lda #TILE_CASE + 3
    rts
@right:
    lda #TILE_CASE + 4
    rts
@ground:
    lda ground_row, x
    rts
@deep:
    cpx #2
    bcc @grid
    cpx #30
    bcs @grid
    lda #TILE_DEEP
    rts
@net:
    cpx #15
    beq @mesh
    cpx #16
    bne @grid
@mesh:
    cmp #ROW_GROUND - 3
    bne :+
    txa
    clc
    adc #<($09 - 15)
    rts
:   txa
    clc
    adc #<($07 - 15)
    rts
.endproc

; The tile of the graticule at row t2, column t3. Keeps X.
.proc grid_tile
    lda t2
    and #3
    cmp #ROW_GROUND & 3
    beq @across
    lda t3
    and #3
    bne @empty
    lda t3
    cmp #16
    beq @axis
    lda #TILE_GRID
    rts
@axis:
    lda #TILE_GRID + 3
    rts
@empty:
    lda #0
    rts
@across:
    lda t3
    and #3
    beq :+
    lda #TILE_GRID + 1
    rts
:   lda #TILE_GRID + 2
    rts
.endproc

; Writes the string at A and X while the picture is off, at the place that PPU_ADDR was given.
.proc print
    sta ptr
    stx ptr+1
    ldy #0
:   lda (ptr), y
    beq @done
    sta PPU_DATA
    iny
    bne :-                  ; always
@done:
    rts
.endproc

; Writes `string` at a row and column while the picture is off.
.macro print_at row, column, string
    lda #>($2000 + (row) * 32 + (column))
    sta PPU_ADDR
    lda #<($2000 + (row) * 32 + (column))
    sta PPU_ADDR
    lda #<string
    ldx #>string
    jsr print
.endmacro

.segment "RODATA"

; The background: phosphor, the left side, the right side, the case. Then the sprites: left, right, ball, sparks.
colours:
    .byte $0F, $0A, $1A, $3A
    .byte $0F, $0C, $1C, $3C
    .byte $0F, $07, $27, $38
    .byte $0F, $0A, $2D, $00
    .byte $0F, $0C, $2C, $3C
    .byte $0F, $07, $27, $38
    .byte $0F, $0A, $1A, $3A
    .byte $0F, $17, $28, $30

corner_row:
    .byte 2, 2, 27, 27
corner_column:
    .byte 1, 30, 1, 30

ground_row:
    .byte 0, 0, $0E, $05, $06, $05, $05, $05, $05, $05, $05, $05, $05, $05, $05, $0B
    .byte $0C, $05, $05, $05, $05, $05, $05, $05, $05, $05, $05, $05, $06, $0F, 0, 0

attributes:
    .byte $7F, $5F, $5F, $0F, $0F, $AF, $AF, $EF
    .repeat 6
    .byte $33, $00, $00, $00, $00, $00, $00, $CC
    .endrepeat
    .byte $FF, $FF, $FF, $FF, $FF, $FF, $FF, $FF
